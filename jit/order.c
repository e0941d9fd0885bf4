/* The order in which a plan's regions run. Fusion lists regions depth first, so that values have readers close by; but in a training
 * step the update of a layer's weights, which frees what the forward pass has kept for it, would be listed last. Here a region that
 * frees more bytes of the arena than it takes runs as soon as its operands are there, and what overwrites a donated input runs after the
 * input's other readers. The order of fusion stays unless another one has a peak that is lower by more than a thirty-second part. Values are
 * counted without the kernels' scratch, since kernels depend on the order: what is updated in place is read before. */
#include "jit/internal.h"

typedef lib_vec(uint32_t) region_list;

/* A value that has memory of its own, which a view has not: its bytes in the arena, and the regions that read it. */
typedef struct order_value {
    /* 0: a source, or stored in an output's buffer */
    int64_t bytes;
    /* UINT32_MAX: a source */
    uint32_t producer;
    /* without duplicates */
    region_list readers;
    /* copied to an output after all regions */
    bool stays;
    /* of the schedule that is being made: readers that have not run, and the exclusive or of their numbers */
    uint32_t left, rest;
} order_value;

typedef struct order_region {
    /* values read and written, without duplicates; of a view only the former */
    lib_vec(graph_id) reads, writes;
    /* regions that depend on it, and on which it depends; `softly`: only by preference */
    region_list before, after, softly;
    uint32_t hard, soft;
    bool is_view;
    /* what the regions change, at best, that depend on this one alone: at most 0 */
    int64_t later;
    /* of the schedule that is being made: those that have not run, and bytes that it takes less those that it frees */
    uint32_t hard_left, soft_left;
    int64_t change;
    bool done;
} order_region;

typedef struct waiting {
    int64_t change;
    /* number of regions that ran before it was ready */
    uint32_t since, region;
} waiting;

typedef struct order {
    jit_build *build;
    lib_arena *arena;
    uint32_t count;
    order_region *region;
    /* by value; of a view: that of which it is a part */
    graph_id *root;
    order_value *value;
    /* a heap of regions that can run; of a region whose change has become less, only the last entry holds */
    lib_vec(waiting) ready;
    /* what frees is also what only its followers free */
    bool looks_ahead;
    /* regions of the schedule so far */
    uint32_t ran;
} order;

/* ---- what depends on what ---------------------------------------------------------------------------------------- */

static void precede(const order *s, uint32_t first, uint32_t then, bool soft) {
    if (first == then) return;
    order_region *a = &s->region[first], *b = &s->region[then];
    lib_vec_push(s->arena, soft ? &a->softly : &a->after, then);
    if (!soft) lib_vec_push(s->arena, &b->before, first);
    b->soft += soft;
    b->hard += !soft;
}

static void add_reads(order *s, uint32_t r) {
    const graph_region *region = &s->build->regions.data[r];
    for (uint32_t i = 0; i < region->input_count; i++) {
        const graph_id root = s->root[region->inputs[i]];
        order_value *value = &s->value[root];
        if (value->readers.count && value->readers.data[value->readers.count - 1] == r) continue;
        lib_vec_push(s->arena, &value->readers, r);
        lib_vec_push(s->arena, &s->region[r].reads, root);
    }
}

static void add_writes(order *s, uint32_t r) {
    const graph_region *region = &s->build->regions.data[r];
    for (uint32_t o = 0; o < region->output_count; o++) {
        const graph_id value = region->outputs[o];
        s->root[value] = s->region[r].is_view ? s->root[region->inputs[0]] : value;
        if (s->region[r].is_view) continue;
        s->value[value].bytes = (int64_t)jit_padded(jit_value_bytes(s->build, value));
        s->value[value].producer = r;
        lib_vec_push(s->arena, &s->region[r].writes, value);
    }
}

static bool has_node(const jit_build *build, const graph_region *region, bool scatters) {
    bool has = false;
    for (uint32_t n = 0; n < region->node_count; n++) {
        const graph_node *node = &build->bound->nodes.data[region->nodes[n]];
        has = has || (scatters ? node->op->class_ == GRAPH_SCATTER : node->impure);
    }
    return has;
}

/* What an update in place overwrites is read before by the regions that fusion has listed before. */
static void keep_updates(const order *s, uint32_t r) {
    if (!has_node(s->build, &s->build->regions.data[r], true)) return;
    for (uint32_t i = 0; i < s->region[r].reads.count; i++) {
        const region_list *readers = &s->value[s->region[r].reads.data[i]].readers;
        for (uint32_t k = 0; k < readers->count && readers->data[k] < r; k++) precede(s, readers->data[k], r, true);
    }
}

static void note_output(const order *s, uint32_t output) {
    const graph_id id = s->build->bound->outputs.data[output], root = s->root[id];
    order_value *value = &s->value[root];
    const int input = s->build->donated ? s->build->donated[output] : -1;
    if (value->producer == UINT32_MAX) return;
    if (jit_value_bytes(s->build, id) == jit_value_bytes(s->build, root))
        value->bytes = 0;
    else
        value->stays = true;
    const region_list *readers = input < 0 ? NULL : &s->value[s->root[s->build->bound->inputs.data[input]]].readers;
    for (uint32_t k = 0; readers && k < readers->count; k++) precede(s, readers->data[k], value->producer, true);
}

static void collect(order *s) {
    const jit_build *build = s->build;
    const graph *g = build->bound;
    uint32_t *made = LIB_NEW_ARRAY(s->arena, uint32_t, g->values.count + 1), impure = UINT32_MAX;
    for (uint32_t v = 0; v < g->values.count; v++) {
        s->root[v] = v;
        s->value[v].producer = made[v] = UINT32_MAX;
    }
    for (uint32_t r = 0; r < s->count; r++) {
        const graph_region *region = &build->regions.data[r];
        s->region[r].is_view = region->kind == GRAPH_REGION_VIEW;
        add_reads(s, r);
        add_writes(s, r);
        for (uint32_t i = 0; i < region->input_count; i++)
            if (made[region->inputs[i]] != UINT32_MAX) precede(s, made[region->inputs[i]], r, false);
        for (uint32_t o = 0; o < region->output_count; o++) made[region->outputs[o]] = r;
        if (!has_node(build, region, false)) continue;
        if (impure != UINT32_MAX) precede(s, impure, r, false);
        impure = r;
    }
    for (uint32_t r = 0; r < s->count; r++) keep_updates(s, r);
    for (uint32_t o = 0; o < g->outputs.count; o++) note_output(s, o);
}

/* ---- what an order costs ------------------------------------------------------------------------------------------ */

static void begin(const order *s) {
    for (uint32_t v = 0; v < s->build->bound->values.count; v++) {
        order_value *value = &s->value[v];
        value->left = value->readers.count + value->stays;
        value->rest = 0;
        for (uint32_t k = 0; k < value->readers.count; k++) value->rest ^= value->readers.data[k];
    }
    for (uint32_t r = 0; r < s->count; r++) {
        order_region *region = &s->region[r];
        region->hard_left = region->hard;
        region->soft_left = region->soft;
        region->done = false;
        region->change = 0;
        for (uint32_t i = 0; i < region->writes.count; i++)
            if (s->value[region->writes.data[i]].left) region->change += s->value[region->writes.data[i]].bytes;
        for (uint32_t i = 0; i < region->reads.count; i++)
            if (s->value[region->reads.data[i]].left == 1) region->change -= s->value[region->reads.data[i]].bytes;
    }
}

/* The region that alone reads what r writes, and reads nothing else that is computed; UINT32_MAX: there is none. */
static uint32_t follower(const order *s, uint32_t r) {
    const order_region *region = &s->region[r];
    if (region->after.count == 0) return UINT32_MAX;
    const uint32_t next = region->after.data[0];
    bool alone = s->region[next].hard == region->after.count;
    for (uint32_t k = 0; k < region->after.count; k++) alone = alone && region->after.data[k] == next;
    return alone ? next : UINT32_MAX;
}

/* A gradient is transposed, then added to a weight: only the last of these frees. */
static void find_followers(order *s) {
    for (uint32_t r = s->count; r-- > 0;) {
        const uint32_t next = follower(s, r);
        if (next == UINT32_MAX || s->region[next].is_view) continue;
        const int64_t later = s->region[next].change + s->region[next].later;
        if (later < 0) s->region[r].later = later;
    }
}

/* Bytes of the donated outputs that are written while the input is still to be read: these need a copy. */
static int64_t copied_bytes(const order *s, const uint32_t *sequence) {
    const graph *g = s->build->bound;
    uint32_t *position = LIB_NEW_ARRAY(s->arena, uint32_t, (size_t)s->count + 1);
    int64_t bytes = 0;
    for (uint32_t i = 0; i < s->count; i++) position[sequence[i]] = i;
    for (uint32_t o = 0; s->build->donated && o < g->outputs.count; o++) {
        const graph_id value = s->root[g->outputs.data[o]];
        if (s->build->donated[o] < 0 || s->value[value].producer == UINT32_MAX) continue;
        const region_list *readers = &s->value[s->root[g->inputs.data[s->build->donated[o]]]].readers;
        bool early = false;
        for (uint32_t k = 0; k < readers->count; k++)
            early = early || position[readers->data[k]] > position[s->value[value].producer];
        if (early) bytes += (int64_t)jit_value_bytes(s->build, value);
    }
    return bytes;
}

/* What an order takes: bytes that are live at once, at most; bytes of copies; sum of live bytes over all regions. */
typedef struct order_cost {
    int64_t most, copied;
    double sum;
} order_cost;

static order_cost cost_of(const order *s, const uint32_t *sequence) {
    int64_t live = 0, most = 0;
    double sum = 0;
    begin(s);
    for (uint32_t i = 0; i < s->count; i++) {
        const order_region *region = &s->region[sequence[i]];
        for (uint32_t k = 0; k < region->writes.count; k++) live += s->value[region->writes.data[k]].bytes;
        if (live > most) most = live;
        sum += (double)live;
        for (uint32_t k = 0; k < region->writes.count; k++)
            if (!s->value[region->writes.data[k]].left) live -= s->value[region->writes.data[k]].bytes;
        for (uint32_t k = 0; k < region->reads.count; k++) {
            order_value *value = &s->value[region->reads.data[k]];
            if (--value->left == 0) live -= value->bytes;
        }
    }
    return (order_cost){most, copied_bytes(s, sequence), sum};
}

static bool is_better(const order_cost *a, const order_cost *b, bool thin) {
    if (!thin) return a->most + a->copied < b->most + b->copied;
    return a->copied != b->copied ? a->copied < b->copied : a->sum < b->sum;
}

/* ---- orders --------------------------------------------------------------------------------------------------------- */

/* Views take nothing, and regions wait for them. */
static int64_t urgency(const order *s, uint32_t r) {
    const order_region *region = &s->region[r];
    if (region->is_view) return INT64_MIN;
    return region->change + (s->looks_ahead ? region->later : 0);
}

/* Of those that change as much, the last to be ready: what it reads is in cache, and chains are not interleaved. */
static bool comes_first(const waiting *a, const waiting *b) {
    if (a->change != b->change) return a->change < b->change;
    return a->since != b->since ? a->since > b->since : a->region < b->region;
}

static void add_ready(order *s, uint32_t r) {
    if (s->region[r].done || s->region[r].hard_left || s->region[r].soft_left) return;
    const waiting new = {urgency(s, r), s->ran, r};
    lib_vec_push(s->arena, &s->ready, new);
    uint32_t at = s->ready.count - 1;
    for (; at && comes_first(&new, &s->ready.data[(at - 1) / 2]); at = (at - 1) / 2)
        s->ready.data[at] = s->ready.data[(at - 1) / 2];
    s->ready.data[at] = new;
}

static void drop_first(order *s) {
    const waiting moved = s->ready.data[--s->ready.count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < s->ready.count; child = 2 * at + 1) {
        if (child + 1 < s->ready.count && comes_first(&s->ready.data[child + 1], &s->ready.data[child])) child++;
        if (!comes_first(&s->ready.data[child], &moved)) break;
        s->ready.data[at] = s->ready.data[child];
        at = child;
    }
    if (s->ready.count) s->ready.data[at] = moved;
}

/* The region that can run and changes least; NULL: none can. */
static const waiting *first_ready(order *s) {
    while (s->ready.count) {
        const waiting *first = &s->ready.data[0];
        if (!s->region[first->region].done && urgency(s, first->region) == first->change) return first;
        drop_first(s);
    }
    return NULL;
}

static void run(order *s, uint32_t r) {
    order_region *region = &s->region[r];
    region->done = true;
    s->ran++;
    for (uint32_t k = 0; k < region->reads.count; k++) {
        order_value *value = &s->value[region->reads.data[k]];
        value->rest ^= r;
        if (--value->left != 1 || value->stays || !value->bytes) continue;
        s->region[value->rest].change -= value->bytes;
        add_ready(s, value->rest);
    }
    for (uint32_t k = 0; k < region->after.count; k++)
        if (--s->region[region->after.data[k]].hard_left == 0) add_ready(s, region->after.data[k]);
    for (uint32_t k = 0; k < region->softly.count; k++)
        if (--s->region[region->softly.data[k]].soft_left == 0) add_ready(s, region->softly.data[k]);
}

/* The first of the base order that can run; if there is none, the first that is only preferred to be later. */
static uint32_t next_of(const order *s, const uint32_t *base, uint32_t from) {
    for (int preferred = 1; preferred >= 0; preferred--)
        for (uint32_t i = from; i < s->count; i++) {
            const order_region *region = &s->region[base[i]];
            if (!region->done && !region->hard_left && (!preferred || !region->soft_left)) return base[i];
        }
    lib_raise(s->arena->scope, DLC_INTERNAL, "regions depend on each other in a cycle");
}

/* What takes at most `most` bytes more than it frees runs at once, that which takes least first; else, the next of the base order. */
static const uint32_t *make_order(order *s, const uint32_t *base, int64_t most) {
    uint32_t *sequence = LIB_NEW_ARRAY(s->arena, uint32_t, (size_t)s->count + 1), from = 0;
    begin(s);
    s->ready.count = s->ran = 0;
    for (uint32_t r = 0; r < s->count; r++) add_ready(s, r);
    for (uint32_t i = 0; i < s->count; i++) {
        const waiting *first = first_ready(s);
        while (from < s->count && s->region[base[from]].done) from++;
        sequence[i] = first && first->change <= most ? first->region : next_of(s, base, from);
        run(s, sequence[i]);
    }
    return sequence;
}

/* Each region right before the first one that needs it, beginning with those that compute the outputs. */
static const uint32_t *on_demand(const order *s) {
    const graph *g = s->build->bound;
    uint32_t *sequence = LIB_NEW_ARRAY(s->arena, uint32_t, (size_t)s->count + 1), count = 0;
    uint32_t *next = LIB_NEW_ARRAY(s->arena, uint32_t, (size_t)s->count + 1);
    uint32_t *stack = LIB_NEW_ARRAY(s->arena, uint32_t, (size_t)s->count + 1);
    bool *seen = LIB_NEW_ARRAY(s->arena, bool, (size_t)s->count + 1);
    for (uint32_t i = 0; i < g->outputs.count + s->count; i++) {
        const uint32_t root =
            i < g->outputs.count ? s->value[s->root[g->outputs.data[i]]].producer : i - g->outputs.count;
        uint32_t depth = 0;
        if (root != UINT32_MAX && !seen[root]) stack[depth++] = root, seen[root] = true;
        while (depth) {
            const uint32_t at = stack[depth - 1];
            const region_list *before = &s->region[at].before;
            if (next[at] == before->count) {
                sequence[count++] = at;
                depth--;
                continue;
            }
            const uint32_t below = before->data[next[at]++];
            if (!seen[below]) stack[depth++] = below, seen[below] = true;
        }
    }
    return sequence;
}

/* Sets *listed to the order in which the regions are listed. */
static order begin_with(jit_build *build, uint32_t **listed) {
    order s = {.build = build, .arena = build->passing ? build->passing : build->work, .count = build->regions.count};
    if (build->passing) lib_arena_reset(build->passing);
    s.region = lib_arena_array(s.arena, (size_t)s.count + 1, sizeof *s.region);
    s.root = LIB_NEW_ARRAY(s.arena, graph_id, build->bound->values.count + 1);
    s.value = lib_arena_array(s.arena, build->bound->values.count + 1, sizeof *s.value);
    collect(&s);
    *listed = LIB_NEW_ARRAY(s.arena, uint32_t, (size_t)s.count + 1);
    for (uint32_t r = 0; r < s.count; r++) (*listed)[r] = r;
    return s;
}

int64_t jit_most_live(jit_build *build) {
    uint32_t *listed;
    const order s = begin_with(build, &listed);
    return cost_of(&s, listed).most;
}

void jit_order_regions(jit_build *build, bool thin) {
    enum { NEGLIGIBLE = 32, BASES = 2, ORDERS = 6 };
    static const int64_t most[ORDERS / BASES] = {-1, 0, INT64_MAX};
    uint32_t *listed;
    order s = begin_with(build, &listed);
    begin(&s);
    find_followers(&s);
    const uint32_t *const bases[] = {listed, on_demand(&s)};
    const uint32_t *best = listed;
    order_cost least = cost_of(&s, listed);
    if (!thin) least.most -= least.most / NEGLIGIBLE;
    for (uint32_t i = 0; i < 2 * ORDERS; i++) {
        s.looks_ahead = i >= ORDERS;
        const uint32_t *sequence = make_order(&s, bases[i % BASES], most[i % ORDERS / BASES]);
        const order_cost cost = cost_of(&s, sequence);
        if (!is_better(&cost, &least, thin)) continue;
        best = sequence;
        least = cost;
    }
    if (best == listed) return;
    graph_region *regions = LIB_NEW_ARRAY(build->work, graph_region, (size_t)s.count + 1);
    for (uint32_t r = 0; r < s.count; r++) regions[r] = build->regions.data[best[r]];
    build->regions.data = regions;
}
