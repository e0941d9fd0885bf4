/* Plans within memory_bytes: while the arena is larger, a value that is live at the peak but not used there is dropped before and
 * computed again behind it, by a copy of its region or of the part of the region that computes it. Of all such values the one goes first
 * whose region is predicted to take the least time for each byte that is freed. A step that lowers neither the peak nor the number of
 * times at which it is reached is undone. The order of the steps does not depend on the limit, so that a smaller limit takes the same
 * steps and more: the arena never grows when the limit falls (unlike with a knapsack over sizes).
 *
 * Steps are counted on *items*, the regions in their order and the copies between them, and *instances* of their values; at the
 * end, items become a graph and regions, which are planned like any others. Copies run the same kernels. The count includes the kernels'
 * scratch and what they overwrite, but no gaps between values: each step that may fit is planned as a whole. */
#include "graph/recompute.h"
#include "jit/internal.h"

#include <math.h>

#define NEVER UINT32_MAX

/* A region that runs once. */
typedef struct item {
    /* in terms of the values of the first plan */
    const graph_region *region;
    /* instances that it reads and writes, as listed in the region */
    uint32_t *inputs, *outputs;
    /* number of the region in the first plan, of which it is a copy or a part */
    uint32_t origin;
    /* not the whole region */
    bool part;
    /* a copy */
    bool again;
    /* goes elsewhere in the sequence that is being made */
    bool moved;
    /* of a copy: predicted cycles */
    double time;
    uint32_t at;
} item;

/* A value, as one item computes it. The instances of the first plan have the numbers of the values. */
typedef struct instance {
    graph_id id;
    /* the instance in whose bytes it lies: that of which it is a view or a part; else itself */
    uint32_t root;
    /* in the arena */
    int64_t bytes;
    /* NULL: a source */
    item *by;
    /* the instance of the same value that was made before; 0: none */
    uint32_t older;
    /* stays as it is: an output, or a value with parts */
    bool fixed;
    /* positions: first written, last read or written, first read behind the peak */
    uint32_t begin, end, next;
    /* number of times that the last item reads it */
    uint32_t reads;
    /* used by the item at the peak */
    bool used;
} instance;

/* What computes some outputs of a region, given others. */
typedef struct recipe {
    struct recipe *next;
    const graph_region *from, *region;
    uint64_t wanted, given;
    /* predicted cycles */
    double time;
} recipe;

/* Outputs of an item that are to be computed again. */
typedef struct candidate {
    item *of;
    uint64_t wanted, given;
    const recipe *by;
    /* before the item at this position */
    uint32_t before;
    double score;
} candidate;

typedef struct change {
    item *reader;
    uint32_t input, was;
} change;

typedef lib_vec(item *) items;

typedef struct memory_fit {
    jit_build *build;
    lib_arena *arena;
    /* of the first plan */
    graph *bound;
    graph_regions regions;
    graph_fuse_costs costs;
    /* by region of the first plan: recipes; may it be computed again; bytes of scratch; what its outputs may overwrite (NULL: nothing) */
    recipe **recipes;
    bool *may;
    int64_t *scratch;
    const uint64_t **shares;
    items sequence;
    lib_vec(instance) instances;
    /* by value: its newest instance */
    uint32_t *newest;
    /* by value: the instance that is written to an output's buffer to which the source is donated; 0: none */
    uint32_t *overwritten_by;
    /* changes of the step that is being tried; items before and behind the copy */
    lib_vec(change) log;
    items early, late;
    lib_vec(candidate) refused;
    /* of the sequence: most live bytes, the first position that has as many, the number of such positions */
    int64_t peak;
    uint32_t top, tops;
} memory_fit;

static bool is_view(const item *it) {
    return it->region->kind == GRAPH_REGION_VIEW;
}

static instance *instance_of(const memory_fit *s, uint32_t number) {
    return &s->instances.data[number];
}

static instance *root_of(const memory_fit *s, uint32_t number) {
    return instance_of(s, instance_of(s, number)->root);
}

/* ---- the first plan ------------------------------------------------------------------------------------------------ */

/* The value in whose bytes the value lies without overwriting it. */
static graph_id whole_of(const jit_build *build, graph_id value) {
    while (build->links[value].base && !build->links[value].over) value = build->links[value].base;
    return value;
}

static void add_values(memory_fit *s) {
    const jit_build *build = s->build;
    for (graph_id v = 0; v < s->bound->values.count; v++) {
        const graph_id home = jit_home(build, v, NULL);
        const bool stored = build->produced[home] && build->place[home].kind == JIT_PLACE_ARENA;
        const instance new = {.id = v, .root = whole_of(build, v)};
        lib_vec_push(s->arena, &s->instances, new);
        if (stored && new.root == v) s->instances.data[v].bytes = (int64_t)jit_padded(jit_value_bytes(s->build, v));
        s->newest[v] = v;
    }
}

static void add_item(memory_fit *s, uint32_t r) {
    const graph_region *region = &s->regions.data[r];
    item *new = LIB_NEW(s->arena, item);
    new->region = region;
    new->origin = r;
    new->inputs = lib_arena_copy(s->arena, region->inputs, (size_t)region->input_count * sizeof *new->inputs);
    new->outputs = lib_arena_copy(s->arena, region->outputs, (size_t)region->output_count * sizeof *new->outputs);
    for (uint32_t o = 0; o < region->output_count; o++) {
        instance *value = instance_of(s, region->outputs[o]);
        value->by = new;
        if (!is_view(new) && value->root != region->outputs[o]) root_of(s, region->outputs[o])->fixed = true;
    }
    lib_vec_push(s->arena, &s->sequence, new);
    s->may[r] = !s->build->parts[r] && region->output_count <= 64 && graph_may_recompute(s->bound, region);
}

static void note_kernels(memory_fit *s) {
    const jit_build *build = s->build;
    for (uint32_t q = 0; q < build->request_count; q++) {
        const jit_request *request = &build->requests[q];
        const uint32_t r = (uint32_t)(request->region - s->regions.data);
        uint64_t *shares = lib_arena_copy(s->arena, request->kernel->shares,
                                          ((size_t)request->region->output_count + 1) * sizeof *shares);
        if (build->updates[r]) shares[build->updates[r] - 1] = UINT64_MAX;
        s->shares[r] = shares;
    }
    for (uint32_t i = 0; i < build->scratch_count; i++)
        if (build->scratch[i].region != GRAPH_NONE)
            s->scratch[build->scratch[i].region] += (int64_t)jit_padded((size_t)build->scratch[i].bytes);
}

static void note_outputs(memory_fit *s) {
    const graph *g = s->bound;
    for (uint32_t o = 0; o < g->outputs.count; o++) {
        instance *value = root_of(s, g->outputs.data[o]);
        value->fixed = true;
        const int input = s->build->donated[o];
        if (input >= 0 && value->by) s->overwritten_by[g->inputs.data[input]] = value->id;
    }
}

static void begin(memory_fit *s, jit_build *build) {
    const uint32_t regions = build->regions.count + 1, values = build->bound->values.count + 1;
    *s = (memory_fit){.build = build,
                      .arena = build->work,
                      .bound = build->bound,
                      .regions = build->regions,
                      .costs = jit_fuse_costs(build),
                      .recipes = LIB_NEW_ARRAY(build->work, recipe *, regions),
                      .may = LIB_NEW_ARRAY(build->work, bool, regions),
                      .scratch = LIB_NEW_ARRAY(build->work, int64_t, regions),
                      .shares = LIB_NEW_ARRAY(build->work, const uint64_t *, regions),
                      .newest = LIB_NEW_ARRAY(build->work, uint32_t, values),
                      .overwritten_by = LIB_NEW_ARRAY(build->work, uint32_t, values)};
    add_values(s);
    for (uint32_t r = 0; r < s->regions.count; r++) add_item(s, r);
    note_kernels(s);
    note_outputs(s);
}

/* ---- what is live ---------------------------------------------------------------------------------------------------- */

static void find_lifetimes(memory_fit *s) {
    for (uint32_t i = 0; i < s->instances.count; i++) {
        s->instances.data[i].begin = NEVER;
        s->instances.data[i].end = 0;
    }
    for (uint32_t at = 0; at < s->sequence.count; at++) {
        item *here = s->sequence.data[at];
        here->at = at;
        if (is_view(here)) continue; /* whoever reads the view reads its root */
        for (uint32_t i = 0; i < here->region->input_count; i++) {
            instance *root = root_of(s, here->inputs[i]);
            root->reads = root->end == at && root->begin != at ? root->reads + 1 : 1;
            root->end = at;
        }
        for (uint32_t o = 0; o < here->region->output_count; o++) {
            instance *root = root_of(s, here->outputs[o]);
            if (root->begin == NEVER) root->begin = at;
            root->end = at;
        }
    }
    for (uint32_t o = 0; o < s->bound->outputs.count; o++) {
        instance *root = root_of(s, s->bound->outputs.data[o]);
        if (root->bytes) root->end = s->sequence.count;
    }
}

static bool may_overwrite(const memory_fit *s, const item *here, uint32_t input, uint32_t output) {
    if (here->part) return true;
    const uint64_t *shares = s->shares[here->origin];
    return shares && input < 64 && shares[output] >> input & 1;
}

/* Bytes of results that overwrite an operand which dies there. */
static int64_t overwritten(memory_fit *s, const item *here) {
    int64_t bytes = 0;
    for (uint32_t o = 0; o < here->region->output_count && here->region->kind == GRAPH_REGION_KERNEL; o++) {
        const instance *to = instance_of(s, here->outputs[o]);
        bool over = false;
        for (uint32_t i = 0; i < here->region->input_count && !over && to->bytes; i++) {
            instance *from = root_of(s, here->inputs[i]);
            over = from->bytes == to->bytes && from->end == here->at && from->begin < here->at && from->reads == 1 &&
                   may_overwrite(s, here, i, o);
            if (over) from->reads = 0; /* by one result only */
        }
        if (over) bytes += to->bytes;
    }
    return bytes;
}

static void find_peak(memory_fit *s) {
    const uint32_t count = s->sequence.count;
    lib_arena *passing = s->build->passing;
    lib_arena_reset(passing);
    int64_t *changes = LIB_NEW_ARRAY(passing, int64_t, (size_t)count + 2), live = 0;
    find_lifetimes(s);
    for (uint32_t i = 0; i < s->instances.count; i++) {
        const instance *value = &s->instances.data[i];
        if (value->begin == NEVER) continue;
        changes[value->begin] += value->bytes;
        changes[value->end + 1] -= value->bytes;
    }
    s->peak = s->tops = s->top = 0;
    for (uint32_t at = 0; at < count; at++) {
        const item *here = s->sequence.data[at];
        live += changes[at];
        const int64_t now = live - overwritten(s, here) + (here->part ? 0 : s->scratch[here->origin]);
        if (now > s->peak) {
            s->top = at;
            s->peak = now;
            s->tops = 0;
        }
        s->tops += now == s->peak;
    }
}

/* ---- recipes --------------------------------------------------------------------------------------------------------- */

/* Predicted cycles; by operations and bytes if there is no model. */
static double time_of(const memory_fit *s, const graph_region *region) {
    double cycles[GRAPH_FUSE_WIDTHS] = {INFINITY};
    if (s->costs.predict && s->costs.predict(s->costs.user, region, NULL, cycles) && isfinite(cycles[0]))
        return cycles[0] + 1;
    double operations = 0, bytes = 0;
    lib_arena *arena = s->build->passing;
    lib_arena_reset(arena);
    tir_region *computation = graph_region_build(arena, s->build->bound, region, jit_is_constant, s->build);
    tir_region_work(arena, computation, tir_work_of(arena, computation), s->build->param_values, &operations, &bytes);
    return operations / 16 + bytes / 8 + 1;
}

static const recipe *recipe_of(memory_fit *s, const item *of, uint64_t wanted, uint64_t given) {
    for (const recipe *known = s->recipes[of->origin]; known; known = known->next)
        if (known->from == of->region && known->wanted == wanted && known->given == given) return known;
    graph_region part = graph_region_part(s->arena, s->bound, of->region, wanted, given);
    recipe *new = LIB_NEW(s->arena, recipe);
    *new = (recipe){s->recipes[of->origin], of->region, lib_arena_copy(s->arena, &part, sizeof part), wanted, given, 0};
    new->time = time_of(s, new->region);
    s->recipes[of->origin] = new;
    return new;
}

/* The item's instance of a value that its region reads or, if given, writes. */
static uint32_t read_by(const item *of, graph_id value) {
    for (uint32_t i = 0; i < of->region->input_count; i++)
        if (of->region->inputs[i] == value) return of->inputs[i];
    for (uint32_t o = 0; o < of->region->output_count; o++)
        if (of->region->outputs[o] == value) return of->outputs[o];
    return value;
}

/* ---- candidates ------------------------------------------------------------------------------------------------------ */

/* Is the source, by then, overwritten by the output to which it is donated? */
static bool is_overwritten(const memory_fit *s, const instance *source, uint32_t before) {
    const uint32_t by = s->overwritten_by[source->id];
    return by && instance_of(s, by)->by->at < before;
}

/* The instance of the root's value that can be read before the item at that position: one that is live there, else the latest. */
static uint32_t find_before(const memory_fit *s, uint32_t root, uint32_t before) {
    uint32_t latest = root;
    for (uint32_t i = s->newest[instance_of(s, root)->id]; i; i = instance_of(s, i)->older) {
        const instance *value = instance_of(s, i);
        if (value->begin >= before) continue;
        if (value->end >= before) return i;
        if (value->begin > instance_of(s, latest)->begin) latest = i;
    }
    return latest;
}

/* Bytes of operands that would be live at the peak for the copy alone; -1: an operand is overwritten. */
static int64_t extended_bytes(const memory_fit *s, const item *of, const recipe *by, uint32_t before) {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < by->region->input_count; i++) {
        const uint32_t root = instance_of(s, read_by(of, by->region->inputs[i]))->root;
        if (!instance_of(s, root)->by && is_overwritten(s, instance_of(s, root), before)) return -1;
        if (!instance_of(s, root)->by) continue;
        const instance *value = instance_of(s, find_before(s, root, before));
        if (value->end < s->top) bytes += value->bytes;
    }
    return bytes;
}

static bool was_refused(const memory_fit *s, const candidate *c) {
    bool refused = false;
    for (uint32_t i = 0; i < s->refused.count; i++) {
        const candidate *other = &s->refused.data[i];
        refused = refused || (other->of == c->of && other->wanted == c->wanted && other->given == c->given);
    }
    return refused;
}

static void consider(memory_fit *s, item *of, uint64_t wanted, uint64_t given, candidate *best) {
    candidate new = {.of = of, .wanted = wanted, .given = given, .before = NEVER};
    int64_t bytes = 0;
    for (uint32_t o = 0; o < of->region->output_count; o++) {
        const instance *value = instance_of(s, of->outputs[o]);
        if (!(wanted >> o & 1)) continue;
        bytes += value->bytes;
        if (value->next < new.before) new.before = value->next;
    }
    if (was_refused(s, &new)) return;
    new.by = recipe_of(s, of, wanted, given);
    const int64_t extended = extended_bytes(s, of, new.by, new.before);
    if (extended < 0 || extended >= bytes) return;
    new.score = new.by->time / (double)(bytes - extended);
    if (!best->of || new.score < best->score) *best = new;
}

/* Outputs that are live at the peak, but not used there. */
static uint64_t crossing(const memory_fit *s, const item *of) {
    uint64_t outputs = 0;
    for (uint32_t o = 0; o < of->region->output_count; o++) {
        const instance *value = instance_of(s, of->outputs[o]);
        if (value->root == of->outputs[o] && value->bytes && !value->fixed && !value->used && value->next != NEVER &&
            value->begin < s->top)
            outputs |= UINT64_C(1) << o;
    }
    return outputs;
}

/* Outputs besides `except` that can be read at that position. */
static uint64_t readable(const memory_fit *s, const item *of, uint64_t except, uint32_t before) {
    uint64_t outputs = 0;
    for (uint32_t o = 0; o < of->region->output_count; o++) {
        const instance *value = root_of(s, of->outputs[o]);
        if (!(except >> o & 1) && value->begin < before && value->end >= before) outputs |= UINT64_C(1) << o;
    }
    return outputs;
}

/* Sets where instances are used at the peak and behind it. */
static void find_uses(memory_fit *s) {
    for (uint32_t i = 0; i < s->instances.count; i++) {
        s->instances.data[i].next = NEVER;
        s->instances.data[i].used = false;
    }
    for (uint32_t at = s->top; at < s->sequence.count; at++) {
        const item *here = s->sequence.data[at];
        for (uint32_t i = 0; i < here->region->input_count && !is_view(here); i++) {
            instance *root = root_of(s, here->inputs[i]);
            if (at == s->top) root->used = true;
            if (at > s->top && root->next == NEVER) root->next = at;
        }
    }
}

static bool find_candidate(memory_fit *s, candidate *best) {
    find_uses(s);
    *best = (candidate){.of = NULL};
    for (uint32_t at = 0; at < s->top; at++) {
        item *of = s->sequence.data[at];
        if (!s->may[of->origin]) continue;
        const uint64_t all = crossing(s, of);
        if (all) consider(s, of, all, 0, best);
        for (uint32_t o = 0; o < of->region->output_count; o++) {
            const uint64_t one = UINT64_C(1) << o;
            if (!(all & one)) continue;
            const uint64_t given = readable(s, of, one, instance_of(s, of->outputs[o])->next);
            if (given || all != one) consider(s, of, one, given, best);
        }
    }
    return best->of != NULL;
}

/* ---- a step ---------------------------------------------------------------------------------------------------------- */

static uint32_t new_instance(memory_fit *s, graph_id id, item *by) {
    const uint32_t number = s->instances.count;
    lib_vec_push(s->arena, &s->instances, ((instance){.id = id, .root = number, .by = by, .older = s->newest[id]}));
    s->newest[id] = number;
    return number;
}

static item *new_copy(memory_fit *s, const graph_region *region, uint32_t origin) {
    item *new = LIB_NEW(s->arena, item);
    new->region = region;
    new->origin = origin;
    new->again = true;
    new->inputs = LIB_NEW_ARRAY(s->arena, uint32_t, (size_t)region->input_count + 1);
    new->outputs = LIB_NEW_ARRAY(s->arena, uint32_t, (size_t)region->output_count + 1);
    return new;
}

/* The view of `root` that `view` is of another instance of the same value; made, and listed, if it is not yet. */
static uint32_t view_of(memory_fit *s, uint32_t view, uint32_t root, items *list) {
    if (instance_of(s, view)->root == view) return root;
    const item *by = instance_of(s, view)->by;
    const uint32_t operand = view_of(s, by->inputs[0], root, list);
    for (uint32_t i = 0; i < list->count; i++)
        if (list->data[i]->region == by->region && list->data[i]->inputs[0] == operand)
            return list->data[i]->outputs[0];
    item *new = new_copy(s, by->region, by->origin);
    new->inputs[0] = operand;
    new->outputs[0] = new_instance(s, instance_of(s, view)->id, new);
    instance_of(s, new->outputs[0])->root = instance_of(s, operand)->root;
    lib_vec_push(s->arena, list, new);
    return new->outputs[0];
}

/* Can the copy run before that position? */
static bool may_be_earlier(const memory_fit *s, const item *copy, uint32_t before) {
    bool may = copy->again && copy->at >= before && !copy->moved;
    for (uint32_t i = 0; i < copy->region->input_count; i++) {
        const instance *value = instance_of(s, copy->inputs[i]);
        may = may && (!value->by || value->by->at < before);
    }
    return may;
}

/* An instance of the value for the copy: one that is there, else a later copy, which then runs earlier, else the latest. */
static uint32_t provide(memory_fit *s, uint32_t value, uint32_t before) {
    uint32_t root = instance_of(s, value)->root, found = find_before(s, root, before);
    if (!instance_of(s, root)->by) return value;
    for (uint32_t i = s->newest[instance_of(s, root)->id]; i && instance_of(s, found)->end < before;
         i = instance_of(s, i)->older) {
        item *copy = instance_of(s, i)->by;
        if (!copy || !may_be_earlier(s, copy, before)) continue;
        copy->moved = true;
        lib_vec_push(s->arena, &s->early, copy);
        found = i;
        break;
    }
    return found == root ? value : view_of(s, value, found, &s->early);
}

static void replace_reads(memory_fit *s, uint32_t old, uint32_t new, uint32_t from) {
    for (uint32_t at = from; at < s->sequence.count; at++) {
        item *reader = s->sequence.data[at];
        for (uint32_t i = 0; i < reader->region->input_count && !is_view(reader) && !reader->moved; i++) {
            const uint32_t was = reader->inputs[i];
            if (instance_of(s, was)->root != old) continue;
            const uint32_t now = view_of(s, was, new, &s->late);
            lib_vec_push(s->arena, &s->log, ((change){reader, i, was}));
            reader->inputs[i] = now;
        }
    }
}

/* The sequence with the copy before that position. */
static items insert(memory_fit *s, item *copy, uint32_t before) {
    items out = {0};
    lib_vec_reserve(s->arena, &out, s->sequence.count + s->early.count + s->late.count + 1);
    for (uint32_t at = 0; at < s->sequence.count; at++) {
        for (uint32_t i = 0; at == before && i < s->early.count; i++) lib_vec_push(s->arena, &out, s->early.data[i]);
        if (at == before) lib_vec_push(s->arena, &out, copy);
        for (uint32_t i = 0; at == before && i < s->late.count; i++) lib_vec_push(s->arena, &out, s->late.data[i]);
        if (!s->sequence.data[at]->moved) lib_vec_push(s->arena, &out, s->sequence.data[at]);
    }
    for (uint32_t i = 0; i < s->early.count; i++) s->early.data[i]->moved = false;
    return out;
}

static void take(memory_fit *s, const candidate *c) {
    const graph_region *region = c->by->region;
    item *copy = new_copy(s, region, c->of->origin);
    copy->part = region->node_count < s->regions.data[c->of->origin].node_count ||
                 region->output_count < s->regions.data[c->of->origin].output_count;
    copy->time = c->by->time;
    s->early.count = s->late.count = s->log.count = 0;
    for (uint32_t i = 0; i < region->input_count; i++)
        copy->inputs[i] = provide(s, read_by(c->of, region->inputs[i]), c->before);
    for (uint32_t o = 0; o < region->output_count; o++) {
        const uint32_t old = read_by(c->of, region->outputs[o]);
        copy->outputs[o] = new_instance(s, region->outputs[o], copy);
        instance_of(s, copy->outputs[o])->bytes = instance_of(s, old)->bytes;
        replace_reads(s, old, copy->outputs[o], c->before);
    }
    s->sequence = insert(s, copy, c->before);
}

static void undo(memory_fit *s, items sequence, uint32_t instances) {
    for (uint32_t i = s->log.count; i-- > 0;) {
        const change *made = &s->log.data[i];
        made->reader->inputs[made->input] = made->was;
    }
    while (s->instances.count > instances) {
        const instance *last = &s->instances.data[--s->instances.count];
        s->newest[last->id] = last->older;
    }
    s->sequence = sequence;
    find_peak(s);
}

/* Takes the best step that lowers the peak, or makes it rarer; false: there is none. */
static bool lower_peak(memory_fit *s) {
    candidate best;
    find_peak(s);
    s->refused.count = 0;
    while (find_candidate(s, &best)) {
        const items sequence = s->sequence;
        const uint32_t instances = s->instances.count, tops = s->tops;
        const int64_t peak = s->peak;
        take(s, &best);
        find_peak(s);
        if (s->peak < peak || (s->peak == peak && s->tops < tops)) return true;
        undo(s, sequence, instances);
        lib_vec_push(s->arena, &s->refused, best);
    }
    return false;
}

/* ---- the plan -------------------------------------------------------------------------------------------------------- */

/* Removes the views that nobody reads any more. */
static void drop_views(memory_fit *s) {
    bool *read = LIB_NEW_ARRAY(s->arena, bool, (size_t)s->instances.count + 1);
    items kept = {0};
    for (uint32_t o = 0; o < s->bound->outputs.count; o++) read[s->bound->outputs.data[o]] = true;
    lib_vec_reserve(s->arena, &kept, s->sequence.count);
    kept.count = s->sequence.count;
    uint32_t first = s->sequence.count;
    for (uint32_t at = s->sequence.count; at-- > 0;) {
        item *here = s->sequence.data[at];
        if (is_view(here) && !read[here->outputs[0]]) continue;
        for (uint32_t i = 0; i < here->region->input_count; i++) read[here->inputs[i]] = true;
        kept.data[--first] = here;
    }
    kept.count -= first;
    memmove(kept.data, kept.data + first, kept.count * sizeof *kept.data);
    s->sequence = kept;
}

/* Sets the build's graph and regions to the sequence. */
static void make_regions(memory_fit *s) {
    lib_arena *arena = s->arena;
    drop_views(s);
    graph *g = graph_extend(arena, s->bound);
    graph_regions regions = {.data = LIB_NEW_ARRAY(arena, graph_region, (size_t)s->sequence.count + 1),
                             .count = s->sequence.count};
    graph_id *now = LIB_NEW_ARRAY(arena, graph_id, (size_t)s->instances.count + 1);
    for (uint32_t v = 0; v < s->bound->values.count; v++) now[v] = v;
    for (uint32_t at = 0; at < s->sequence.count; at++) {
        const item *here = s->sequence.data[at];
        graph_region *region = &regions.data[at];
        graph_id *inputs = LIB_NEW_ARRAY(arena, graph_id, (size_t)here->region->input_count + 1);
        bool same = !here->again;
        *region = *here->region;
        for (uint32_t i = 0; i < region->input_count; i++) {
            inputs[i] = now[here->inputs[i]];
            same = same && inputs[i] == region->inputs[i];
        }
        if (!same) *region = graph_region_copy(g, here->region, inputs);
        for (uint32_t o = 0; o < region->output_count; o++) now[here->outputs[o]] = region->outputs[o];
    }
    for (uint32_t o = 0; o < g->outputs.count; o++) g->outputs.data[o] = now[s->bound->outputs.data[o]];
    const tir_layout **layouts = s->regions.layouts ? LIB_NEW_ARRAY(arena, const tir_layout *, g->values.count) : NULL;
    for (uint32_t i = 0; layouts && i < s->instances.count; i++)
        if (now[i]) layouts[now[i]] = s->regions.layouts[s->instances.data[i].id];
    regions.layouts = layouts;
    for (uint32_t r = 0; r < regions.count; r++) regions.data[r].layouts = layouts;
    s->build->bound = g;
    s->build->regions = regions;
}

static int64_t plan_sequence(memory_fit *s) {
    make_regions(s);
    jit_plan_again(s->build);
    return s->build->plan->arena_bytes;
}

/* For the dump "kept". */
static void note_copies(const memory_fit *s) {
    jit_plan *plan = s->build->plan;
    plan->again = LIB_NEW_ARRAY(&plan->arena, jit_kept, (size_t)s->sequence.count + 1);
    for (uint32_t at = 0; at + 1 < s->sequence.count; at++) {
        const item *here = s->sequence.data[at];
        jit_kept again = {
            .by = here->region->name, .until = s->sequence.data[at + 1]->region->name, .cycles = here->time};
        if (!here->again || is_view(here)) continue;
        for (uint32_t o = 0; o < here->region->output_count; o++)
            again.bytes += instance_of(s, here->outputs[o])->bytes;
        again.by = lib_arena_string(&plan->arena, again.by);
        again.until = lib_arena_string(&plan->arena, again.until);
        plan->again[plan->again_count++] = again;
    }
}

/* Plans the graph and its regions, and takes steps until the arena is within the limit, or, if `all`, until there are no more. Returns the
 * bytes of the smallest arena that was planned: after the steps that lower the peak and may be within the limit, and after the last one. */
static int64_t fit_within(jit_build *build, graph *bound, graph_regions regions, int64_t limit, bool all) {
    memory_fit s;
    build->bound = bound;
    build->regions = regions;
    jit_plan_again(build);
    begin(&s, build);
    int64_t least = build->plan->arena_bytes, before = INT64_MAX;
    bool planned = true;
    while ((all || least > limit) && lower_peak(&s)) {
        planned = s.peak <= limit && s.peak < before;
        before = s.peak;
        const int64_t arena = planned ? plan_sequence(&s) : least;
        if (arena < least) least = arena;
    }
    const int64_t arena = planned ? least : plan_sequence(&s);
    if (arena < least) least = arena;
    if (!all && least <= limit) note_copies(&s);
    return least;
}

void jit_fit_memory(jit_build *build) {
    const size_t given = build->program->options.memory_bytes;
    const int64_t limit = given > INT64_MAX ? INT64_MAX : (int64_t)given;
    int64_t least = build->plan->arena_bytes;
    if (least <= limit) return;
    jit_order_regions(build, true);
    graph *const bound = build->bound;
    const graph_regions regions = build->regions;
    const int64_t reached = fit_within(build, bound, regions, limit, false);
    if (reached <= limit) return;
    /* The last step need not be the one with the smallest arena. */
    const int64_t smallest = fit_within(build, bound, regions, reached, true);
    if (smallest < least) least = smallest;
    lib_raise(build->work->scope, DLC_BUDGET_EXCEEDED,
              "memory_bytes = %zu: the values between kernels need at least %lld bytes at these shapes", given,
              (long long)least);
}
