/* Predicts a kernel's cost from its loop IR in the form that is executed (tir/vectorise.h), in one traversal. Each value counts once, in the loop where the emitter puts it: that of its
 * deepest operand. A serial loop takes the maximum of its units' time and the latency of its dependence chain; loops add up. Bounds and
 * conditions that vary between iterations are averaged over a few samples of the variables. Traffic comes from footprints
 * (cost_memory.c). */
#include "targets/cpu/cost.h"
#include "targets/cpu/cpu.h"
#include "targets/cpu/units.h"
#include "tir/vectorise.h"

enum { SAMPLES = 8, OPEN = COST_LOOPS, WIDTHS = 8, AXES = 6 };

/* ---- state of the walk --------------------------------------------------------------------------------------------------- */

/* Vectors of one width. */
typedef struct vectors {
    int width;
    double count;
} vectors;

typedef struct open_loop {
    /* serial: also tasks and branches; lanes: all vectors of a vec loop */
    tir_loop_kind kind;
    /* id of its variable; UINT32_MAX: a branch */
    uint32_t var;
    /* first value, in sample 0, and distance between values */
    int64_t low, step;
    /* no loop of the code, but an axis of the loop around it */
    bool between;
    /* iterations per entry */
    double ratio;
    /* lanes: the vectors that the iterations become */
    vectors vectors[WIDTHS];
    /* frame of the loop itself if serial, else of the serial loop around it */
    int frame;
    /* number of the loop in `nest` */
    int nest;
    /* number of this entry of the loop, for counting values once */
    uint32_t serial;
} open_loop;

/* Instructions of a serial loop's own body, inner loops excluded, over all its entries. */
typedef struct frame {
    double fma, vector, load, store, instructions, chain, inner;
    /* buffers that each iteration initialises: nothing is carried to the next; bits by number modulo 64 */
    uint64_t started;
} frame;

/* A stride of one of the axes that a loop's variable stands for: the variable is divided by it. */
typedef struct axis_stride {
    tir_expr var;
    int64_t stride;
} axis_stride;

typedef struct counter {
    lib_arena *arena;
    const tir_machine *machine;
    const tir_rates *rates;
    const tir_kernel *kernel;
    tir_pool *pool;
    cost_work *work;
    cost_nest nest;
    uint64_t *variables[SAMPLES];
    /* by variable: open loops that its value depends on */
    uint32_t *var_mask;
    uint32_t *mask, *mask_epoch;
    /* by node: instance of the loop that it was counted in */
    uint32_t *counted;
    uint32_t epoch, serials;
    /* executions of the current statement */
    double runs[SAMPLES];
    open_loop open[OPEN];
    int depth;
    /* number of conditions around the statement that mask lanes */
    int masks;
    /* by buffer: a reg buffer that is in memory */
    bool *spilled;
    frame frames[OPEN + 1];
    int frame_count;
    lib_vec(tir_expr) stack;
    lib_vec(const tir_stmt *) lets;
    /* greatest first */
    lib_vec(axis_stride) strides;
} counter;

static double mean(const double *values) {
    double sum = 0;
    for (int s = 0; s < SAMPLES; s++) sum += values[s];
    return sum / (double)SAMPLES;
}

/* Stands for a value loaded from data: arbitrary, but different at different indices. */
static uint64_t load_anything(void *user, const tir_node *node, const int64_t *index) {
    (void)user;
    uint64_t hash = node->bits + 1;
    for (int i = 0; i < node->count - 2 * node->guarded; i++) hash = (hash ^ (uint64_t)index[i]) * 0x9e3779b97f4a7c15u;
    return hash >> 56;
}

static int64_t evaluate(const counter *c, tir_expr e, int sample) {
    int64_t value;
    if (tir_is_const(c->pool, e, &value)) return value;
    tir_evaluator evaluator = {.variables = c->variables[sample], .load = load_anything};
    return (int64_t)tir_evaluate(c->pool, e, &evaluator);
}

/* ---- dependences on open loops ---------------------------------------------------------------------------------------------- */

/* The innermost serial loop or branch; -1: none. */
static int innermost(const counter *c) {
    int i = c->depth - 1;
    while (i >= 0 && c->open[i].kind != TIR_SERIAL) i--;
    return i;
}

/* The loops on which a node depends, as a bit mask, given those of its operands. Loads stay in the loop that contains them. */
static uint32_t own_mask(counter *c, tir_expr e) {
    const tir_node *node = tir_get(c->pool, e);
    uint32_t mask = node->op == TIR_VAR ? c->var_mask[node->bits] : 0;
    int here = node->op == TIR_LOAD ? innermost(c) : -1;
    if (here >= 0) mask |= UINT32_C(1) << here;
    for (int i = 0; i < node->count; i++) mask |= c->mask[tir_operand(c->pool, e, i)];
    return mask;
}

/* The open loops on which an expression depends (bits of c->open). Nodes are visited with an explicit stack; masks are valid for the
 * current statement. */
static uint32_t mask_of(counter *c, tir_expr root) {
    if (c->mask_epoch[root] == c->epoch) return c->mask[root];
    uint32_t base = c->stack.count;
    lib_vec_push(c->arena, &c->stack, root);
    while (c->stack.count > base) {
        tir_expr e = c->stack.data[c->stack.count - 1];
        bool ready = true;
        for (int i = 0; i < tir_get(c->pool, e)->count; i++) {
            tir_expr operand = tir_operand(c->pool, e, i);
            if (c->mask_epoch[operand] == c->epoch) continue;
            lib_vec_push(c->arena, &c->stack, operand);
            ready = false;
        }
        if (!ready) continue;
        c->mask[e] = own_mask(c, e);
        c->mask_epoch[e] = c->epoch;
        c->stack.count--;
    }
    return c->mask[root];
}

/* ---- instructions ------------------------------------------------------------------------------------------------------------- */

/* instructions of one vector, and of one scalar */
typedef struct price {
    double fma, vector;
} price;

static bool is_real(tir_dtype dtype) {
    return dtype < DLC_DTYPE_COUNT && lib_dtype_is_float((dlc_dtype)dtype);
}

static price price_of_cast(const counter *c, tir_dtype to, tir_dtype from) {
    if (from == TIR_INDEX || to == TIR_INDEX) return (price){0, 1};
    bool unit = (c->machine->unit_bits & CPU_BF16_DOT) != 0;
    if (to == DLC_BF16 || to == DLC_F16) return (price){0, to == DLC_F16 ? 2 : unit ? 4 : 6};
    if (is_real(from) && !lib_dtype_is_float((dlc_dtype)to)) return (price){1, 5};
    return (price){0, from == DLC_F16 || from == DLC_BF16 ? 2 : 1}; /* bf16: extended and shifted */
}

static price price_of(const counter *c, tir_expr e) {
    const tir_node *node = tir_get(c->pool, e);
    tir_dtype operand = node->count ? tir_dtype_of(c->pool, tir_operand(c->pool, e, node->count - 1)) : node->dtype;
    bool real = is_real(operand);
    double bytes = c->machine->vector_bytes, wide = operand == DLC_F64 ? c->rates->divide_f64 : c->rates->divide;
    if (tir_ops[node->op].flags & TIR_MATH) return (price){bytes * 8, bytes * 8}; /* a call for each lane */
    switch (node->op) {
    case TIR_CONST:
    case TIR_VAR:
    case TIR_BITCAST: return (price){0, 0};
    case TIR_DIV:
    case TIR_REM:
        if (!real) return (price){0, bytes};
        return (price){bytes / wide * c->rates->fma * (node->op == TIR_REM ? 4 : 1), 2};
    case TIR_SQRT: return (price){1.4 * bytes / wide * c->rates->fma, 2};
    case TIR_ADD:
    case TIR_SUB: return (price){real ? 1 : 0, 1};
    case TIR_MUL: return (price){real ? 1 : 0, real ? 1 : operand == DLC_I64 || operand == DLC_U64 ? 3 : 1.5};
    case TIR_FMA:
    case TIR_MULADD: return (price){1, 1};
    case TIR_DOT2_BF16:
    case TIR_DOT2_I16:
    case TIR_DOT4_U8I8:
        return (price){cpu_unit_multiplications(c->machine, (tir_op)node->op), cpu_unit_instructions((tir_op)node->op)};
    case TIR_MIN:
    case TIR_MAX: return (price){0, real ? 3 : 1};
    case TIR_CAST: return price_of_cast(c, node->dtype, operand);
    default: return (price){0, 1};
    }
}

static bool is_unit(const tir_node *node) {
    return tir_ops[node->op].flags & TIR_DOT;
}

static double latency_of(const counter *c, tir_expr e) {
    if (is_unit(tir_get(c->pool, e))) return c->rates->latency;
    price p = price_of(c, e);
    return p.fma > 1 ? 3 * c->rates->latency : p.fma > 0 ? c->rates->latency : p.vector;
}

/* The innermost loop on which a node depends, in which it is computed; -1: none. */
static int level_of(const counter *c, uint32_t mask) {
    int i = c->depth - 1;
    while (i >= 0 && !(mask >> i & 1)) i--;
    return i;
}

/* How often a value with these dependences is computed, as vectors; `of`: the loop whose iterations they hold, NULL: one scalar for all. */
typedef struct repeated {
    double times;
    const open_loop *of;
} repeated;

static double count_vectors(const open_loop *lanes) {
    double count = 0;
    for (int i = 0; i < WIDTHS; i++) count += lanes->vectors[i].count;
    return count;
}

static double lanes_of(const repeated *done) {
    return done->of ? done->of->ratio / count_vectors(done->of) : 0;
}

static repeated times_done(const counter *c, uint32_t mask, int level) {
    repeated done = {1, NULL};
    for (int i = 0; i <= level; i++) {
        const open_loop *l = &c->open[i];
        bool here = mask >> i & 1;
        if (l->kind == TIR_SERIAL || (here && l->kind == TIR_UNROLL)) done.times *= l->ratio;
        if (!here || l->kind != TIR_LANES) continue;
        done.times *= count_vectors(l);
        done.of = l;
    }
    return done;
}

/* Unit time of one instruction relative to a whole vector: on half-width units, half a vector takes half of it. */
static double share_of(const counter *c, const repeated *done, tir_dtype dtype) {
    const double bytes = dtype < DLC_DTYPE_COUNT ? (double)lib_dtype_size((dlc_dtype)dtype) : 4,
                 half = c->machine->vector_bytes / 2.0;
    double sum = 0;
    if (!c->machine->half_units) return 1;
    if (!done->of) return 0.5;
    for (int i = 0; i < WIDTHS; i++)
        sum += done->of->vectors[i].count * (done->of->vectors[i].width * bytes <= half ? 0.5 : 1);
    return sum / count_vectors(done->of);
}

static frame *frame_of(counter *c, int level) {
    return &c->frames[level < 0 ? 0 : c->open[level].frame];
}

static void spend(counter *c, int level, double fma, double vector, double load, double store) {
    frame *f = frame_of(c, level);
    double instructions = load + store + (vector > fma ? vector : fma);
    f->fma += fma, f->vector += vector, f->load += load, f->store += store, f->instructions += instructions;
    c->work->fma += fma, c->work->vector += vector, c->work->load += load, c->work->store += store;
    c->work->instructions += instructions;
}

/* ---- accesses -------------------------------------------------------------------------------------------------------------------- */

static int64_t address(const counter *c, uint32_t buffer, const tir_expr *index) {
    const tir_buffer *b = &c->kernel->buffers.data[buffer];
    int64_t at = 0;
    for (int d = 0; d < b->rank; d++)
        at += (int64_t)((uint64_t)evaluate(c, index[d], 0) * (uint64_t)evaluate(c, b->stride[d], 0));
    return at * (int64_t)lib_dtype_size(b->dtype);
}

static bool data_decides(const counter *c, tir_expr e) {
    const tir_node *node = tir_get(c->pool, e);
    if (node->op == TIR_LOAD) return true;
    if (node->op == TIR_VAR) return tir_variable_of(c->pool, e)->kind == TIR_VAR_LET && node->dtype != TIR_INDEX;
    for (int i = 0; i < node->count; i++)
        if (data_decides(c, tir_operand(c->pool, e, i))) return true;
    return false;
}

/* Value of a let of index dtype. A loaded value that bounds loops (tir_lower_scalar) counts as half of its maximum: the average fill of a
 * cache. */
static int64_t let_value(const counter *c, const tir_stmt *let, int sample) {
    if (!data_decides(c, let->let.value)) return evaluate(c, let->let.value, sample);
    const tir_interval range = tir_range(c->pool, let->let.var);
    return range.low + (range.high - range.low) / 2;
}

/* Evaluates the lets of index dtype around the current statement again, after other variables have changed. */
static void bind_lets(counter *c, int sample) {
    for (uint32_t i = 0; i < c->lets.count; i++)
        c->variables[sample][tir_var_id(c->pool, c->lets.data[i]->let.var)] =
            (uint64_t)let_value(c, c->lets.data[i], sample);
}

static int64_t address_at(counter *c, uint32_t variable, int64_t value, uint32_t buffer, const tir_expr *index) {
    uint64_t *place = &c->variables[0][variable], kept = *place;
    *place = (uint64_t)value;
    bind_lets(c, 0);
    int64_t at = address(c, buffer, index);
    *place = kept;
    bind_lets(c, 0);
    return at;
}

/* How an access advances along a loop. If the stride changes after 2^k iterations, in runs of 2^k: an axis that is stored in blocks, and
 * whose variable is a sum of several loops' variables, so that it is not counted as loops over its blocks, or along which a tile reads
 * several streams; else by the average stride, of lanes by that of the first ones. */
static cost_pace pace_of(counter *c, const open_loop *l, uint32_t buffer, const tir_expr *index) {
    const bool lanes = l->kind == TIR_LANES;
    const int64_t steps = (lanes || l->kind == TIR_SERIAL) && l->ratio > 2 ? (int64_t)l->ratio - 1 : 1;
    const int64_t first = address_at(c, l->var, l->low, buffer, index);
    const int64_t all = address_at(c, l->var, l->low + steps * l->step, buffer, index) - first;
    if (steps == 1) return (cost_pace){.stride = (double)all};
    const int64_t step = address_at(c, l->var, l->low + l->step, buffer, index) - first;
    for (int64_t run = 2; run <= steps && all != steps * step; run *= 2) {
        const int64_t jump = address_at(c, l->var, l->low + run * l->step, buffer, index) - first;
        if (jump == run * step) continue;
        if (address_at(c, l->var, l->low + (run - 1) * l->step, buffer, index) - first != (run - 1) * step) break;
        return (cost_pace){(double)step, (double)run, (double)jump};
    }
    return (cost_pace){.stride = lanes ? (double)step : (double)all / (double)steps};
}

/* Sets the access' pace along each open loop. Returns its first address; COST_UNKNOWN: data decide it. */
static int64_t find_paces(counter *c, uint32_t buffer, const tir_expr *index, cost_pace pace[OPEN]) {
    int rank = c->kernel->buffers.data[buffer].rank;
    uint32_t mask = 0, irregular = 0;
    bool data = false;
    for (int d = 0; d < rank; d++) {
        const bool here = data_decides(c, index[d]);
        mask |= mask_of(c, index[d]);
        if (here) irregular |= mask_of(c, index[d]);
        data = data || here;
    }
    for (int i = 0; i < c->depth; i++) {
        const open_loop *l = &c->open[i];
        pace[i] = (cost_pace){0};
        if (!(mask >> i & 1) || l->var == UINT32_MAX || l->ratio <= 1) continue;
        pace[i] = irregular >> i & 1 ? (cost_pace){.stride = COST_IRREGULAR} : pace_of(c, l, buffer, index);
    }
    return data ? COST_UNKNOWN : address(c, buffer, index);
}

static void note_access(counter *c, uint32_t buffer, int64_t first, const cost_pace pace[OPEN], bool store,
                        bool past_caches) {
    cost_access access = {.loop = c->depth ? c->open[c->depth - 1].nest : 0,
                          .buffer = buffer,
                          .first = first,
                          .bytes = (double)lib_dtype_size(c->kernel->buffers.data[buffer].dtype),
                          .store = store,
                          .past_caches = past_caches,
                          .count = c->depth};
    for (int i = 0; i < c->depth; i++) access.pace[i] = pace[c->depth - 1 - i];
    for (uint32_t a = c->nest.accesses.count; a > 0; a--) {
        const cost_access *other = &c->nest.accesses.data[a - 1];
        if (other->loop != access.loop) break;
        if (other->buffer == buffer && other->store == store &&
            memcmp(other->pace, access.pace, sizeof access.pace) == 0)
            return;
    }
    lib_vec_push(c->arena, &c->nest.accesses, access);
}

/* Is a load of lanes `step` elements apart made of `step` vector loads and shuffles, rather than lane by lane (emit_memory.c)? */
static bool is_shuffled_load(const counter *c, double step) {
    const double most = c->machine->masked ? 8 : 4;
    return step >= 2 && step <= most && (c->machine->masked || !c->masks);
}

/* Where the lanes of an access are. */
typedef struct lane_places {
    /* next to each other, in either order, or at one address; next to each other in the reverse order */
    bool together, reversed;
    /* elements from lane to lane */
    double step;
} lane_places;

static lane_places places_of_lanes(const counter *c, const cost_pace pace[OPEN], uint32_t mask, double bytes) {
    lane_places places = {.together = true};
    for (int i = 0; i < c->depth; i++) {
        if (c->open[i].kind != TIR_LANES || !(mask >> i & 1)) continue;
        places.reversed = pace[i].stride == -bytes;
        places.together = pace[i].stride == bytes || pace[i].stride == 0 || places.reversed;
        places.step = pace[i].stride / bytes;
    }
    return places;
}

/* Counts the loads of one vector, or with `store` the stores, whose lanes are a stride apart. */
static void count_access(counter *c, uint32_t buffer, const tir_expr *index, uint32_t mask, const tir_stmt *store) {
    tir_dtype dtype = (tir_dtype)c->kernel->buffers.data[buffer].dtype;
    const double bytes = (double)lib_dtype_size((dlc_dtype)dtype);
    cost_pace pace[OPEN];
    const int64_t first = find_paces(c, buffer, index, pace);
    note_access(c, buffer, first, pace, store != NULL, store && store->store.non_temporal);
    int level = level_of(c, mask), here = innermost(c);
    if (here > level) level = here;
    repeated done = times_done(c, mask, level);
    const double lanes = lanes_of(&done);
    double moves = share_of(c, &done, dtype), shuffles = 0;
    const lane_places places = places_of_lanes(c, pace, mask, bytes);
    if (places.reversed) {
        shuffles = 1;
    } else if (!places.together && store && store->store.rows > 1) { /* transposed in registers */
        shuffles = 4;
    } else if (!places.together && !store && is_shuffled_load(c, places.step)) {
        shuffles = places.step;
        moves *= places.step;
    } else if (!places.together) {
        shuffles = moves = lanes;
    }
    spend(c, level, 0, done.times * shuffles, store ? 0 : done.times * moves, store ? done.times * moves : 0);
}

/* ---- values ------------------------------------------------------------------------------------------------------------------------- */

/* Is the buffer in registers? Counts an access if it is only meant to be. */
static bool count_in_registers(counter *c, uint32_t buffer, uint32_t mask, bool store) {
    if (c->kernel->buffers.data[buffer].scope != TIR_SCOPE_REG) return false;
    if (!c->spilled[buffer]) return true;
    const int level = level_of(c, mask), here = innermost(c);
    const repeated done = times_done(c, mask, level > here ? level : here);
    const double times = done.times * share_of(c, &done, (tir_dtype)c->kernel->buffers.data[buffer].dtype);
    spend(c, level > here ? level : here, 0, 0, store ? 0 : times, store ? times : 0);
    return true;
}

static void count_load(counter *c, tir_expr e, uint32_t mask) {
    const tir_node *node = tir_get(c->pool, e);
    if (count_in_registers(c, (uint32_t)node->bits, mask, false)) return;
    tir_expr index[DLC_MAX_RANK * 2];
    for (int i = 0; i < node->count - 2 * node->guarded; i++) index[i] = tir_operand(c->pool, e, i);
    count_access(c, (uint32_t)node->bits, index, mask, NULL);
}

/* Counts the operands of a dot-product unit, neighbours in memory, as one load. */
static int first_operands(const tir_node *node) {
    return is_unit(node) ? 3 : node->count;
}

/* Operations per instruction give the peak rate of the kernel's arithmetic. */
static void count_operations(counter *c, const tir_node *node, double times) {
    double lanes = c->machine->vector_bytes / (node->dtype == DLC_F64 ? 8.0 : 4.0), each = 0;
    if (node->op == TIR_FMA) each = 2;
    if (is_unit(node)) each = tir_ops[node->op].arity - 1; /* a multiplication and an addition for each pair */
    c->work->operations += times * each * lanes;
    c->work->counted += each > 0 ? times : 0;
}

/* Is the condition a compile-time constant: does it depend on lanes and on variables of unrolled loops only? */
static bool is_known_mask(const counter *c, const tir_node *node, uint32_t mask) {
    for (int i = 0; i < c->depth; i++)
        if (mask >> i & 1 && c->open[i].kind == TIR_SERIAL) return false;
    return node->dtype == DLC_BOOL;
}

static uint32_t instance_of(const counter *c, int level) {
    return level < 0 ? 1 : c->open[level].serial;
}

/* Counts the node and everything below it that was not yet counted at its level. */
static void count_value(counter *c, tir_expr root) {
    mask_of(c, root);
    uint32_t base = c->stack.count;
    lib_vec_push(c->arena, &c->stack, root);
    while (c->stack.count > base) {
        tir_expr e = c->stack.data[--c->stack.count];
        const tir_node *node = tir_get(c->pool, e);
        uint32_t mask = c->mask[e];
        if (node->op == TIR_CONST || node->op == TIR_VAR) continue;
        int level = level_of(c, mask);
        const uint32_t instance = instance_of(c, level);
        if (c->counted[e] == instance) continue;
        c->counted[e] = instance;
        repeated done = times_done(c, mask, level);
        if (node->op == TIR_LOAD) {
            count_load(c, e, mask);
        } else if (node->dtype != TIR_INDEX && !is_known_mask(c, node, mask)) {
            price p = price_of(c, e);
            double times = done.times * (done.of || p.fma <= 1 ? share_of(c, &done, node->dtype) : 1.0 / 4);
            spend(c, level, times * p.fma, times * p.vector, 0, 0);
            if (done.of) count_operations(c, node, done.times);
        }
        for (int i = 0, count = first_operands(node); i < count; i++)
            lib_vec_push(c->arena, &c->stack, tir_operand(c->pool, e, i));
    }
}

/* Cycles from the load of the location that the statement stores to that store; -1: the value does not depend on it. */
static double chain_latency(const counter *c, const tir_stmt *stmt, tir_expr e, int depth) {
    const tir_node *node = tir_get(c->pool, e);
    double longest = -1;
    if (tir_loads_stored(c->kernel, stmt, e)) return 0;
    if (node->op == TIR_LOAD || depth == 12) return -1;
    for (int i = 0; i < node->count; i++) {
        double below = chain_latency(c, stmt, tir_operand(c->pool, e, i), depth + 1);
        if (below > longest) longest = below;
    }
    return longest < 0 ? -1 : longest + latency_of(c, e);
}

/* Notes a chain of dependences that the innermost serial loop carries from one iteration to the next (a sum). */
static void count_chain(counter *c, const tir_stmt *stmt, uint32_t index_mask) {
    int inner = innermost(c);
    if (inner < 0 || index_mask >> inner & 1) return;
    double latency = chain_latency(c, stmt, stmt->store.value, 0), times = 1;
    frame *f = &c->frames[c->open[inner].frame];
    uint64_t bit = UINT64_C(1) << stmt->store.buffer % 64;
    if (latency < 0) f->started |= bit;
    if (latency < 0 || f->started & bit) return;
    if (c->kernel->buffers.data[stmt->store.buffer].scope != TIR_SCOPE_REG) latency += 2 * c->rates->latency;
    for (int i = 0; i < c->depth; i++) {
        const open_loop *l = &c->open[i];
        if (l->kind == TIR_SERIAL && i <= inner) times *= l->ratio;
        if (l->kind == TIR_UNROLL && i > inner && !(index_mask >> i & 1)) times *= l->ratio;
    }
    if (latency * times > f->chain) f->chain = latency * times;
}

static void count_store(counter *c, const tir_stmt *stmt) {
    uint32_t index_mask = 0;
    for (int d = 0; d < stmt->store.rank; d++) index_mask |= mask_of(c, stmt->store.index[d]);
    count_value(c, stmt->store.value);
    for (int d = 0; d < stmt->store.rank; d++) count_value(c, stmt->store.index[d]);
    count_chain(c, stmt, index_mask);
    if (count_in_registers(c, stmt->store.buffer, index_mask, true)) return;
    count_access(c, stmt->store.buffer, stmt->store.index, index_mask, stmt);
}

/* ---- loops ---------------------------------------------------------------------------------------------------------------------------- */

static void count_list(counter *c, const tir_stmt *stmt);

/* Cycles of a serial loop: its execution units' time and its chain of dependences overlap, the loops inside do not. */
static double frame_cycles(const counter *c, const frame *f, double entries) {
    double cycles = f->fma / c->rates->fma,
           limit[4] = {f->vector / c->rates->vector, f->load / c->rates->load_sustained, f->store / c->rates->store,
                       f->instructions / c->rates->issue};
    for (int i = 0; i < 4; i++)
        if (limit[i] > cycles) cycles = limit[i];
    /* a short loop's chain overlaps with the loops after it */
    double body = entries > 0 ? f->instructions / entries : 0, chain = f->chain * body / (body + c->rates->window);
    return (chain > cycles ? chain : cycles) + f->inner;
}

static void open_loop_of(counter *c, tir_loop_kind kind, uint32_t var, double ratio) {
    open_loop *l = &c->open[c->depth];
    *l = (open_loop){.kind = kind, .var = var, .step = 1, .ratio = ratio, .serial = ++c->serials};
    l->nest = (int)c->nest.loops.count;
    cost_loop loop = {.parent = c->depth ? c->open[c->depth - 1].nest : 0, .trips = ratio};
    lib_vec_push(c->arena, &c->nest.loops, loop);
    for (int at = l->nest; kind == TIR_SERIAL && at >= 0; at = c->nest.loops.data[at].parent)
        c->nest.loops.data[at].serial_inside = true;
    l->frame = c->depth ? c->open[c->depth - 1].frame : 0;
    if (kind == TIR_SERIAL && var != UINT32_MAX) {
        l->frame = c->frame_count++;
        c->frames[l->frame] = (frame){0};
    }
    c->depth++;
}

static void close_loop(counter *c, double entries) {
    open_loop *l = &c->open[--c->depth];
    if (l->kind != TIR_SERIAL || l->var == UINT32_MAX) return;
    const frame *own = &c->frames[--c->frame_count];
    c->frames[c->depth ? c->open[c->depth - 1].frame : 0].inner +=
        frame_cycles(c, own, entries) + (l->between ? 0 : c->rates->loop * entries);
}

/* A sample's position in its loop, in [0, 1): one sample in each eighth, in an order that depends on the depth. Jittered: even steps
 * through two axes fused into one loop could always hit the start of the inner axis. */
static double sample_place(int sample, int depth) {
    int eighth = (sample * (2 * depth + 3) + depth) % SAMPLES;
    unsigned jitter = (unsigned)(sample * 5 + depth * 3 + 1) * 2654435769u;
    return (eighth + (double)jitter / 4294967296.0) / (double)SAMPLES;
}

/* A loop whose variable starts at lower[s], in each sample s, and takes extent[s] values, `step` apart (0: 1). */
typedef struct counted_loop {
    tir_loop_kind kind;
    tir_expr var;
    int64_t lower[SAMPLES], extent[SAMPLES], step;
    /* a loop over the values between two of the loop around it, which has the same variable: it starts at that one's value */
    bool between;
    vectors vectors[WIDTHS];
} counted_loop;

/* The loops, each in the one before, around `body`. */
static void count_body(counter *c, const counted_loop *loop, int count, const tir_stmt *body) {
    if (count == 0) {
        count_list(c, body);
        return;
    }
    double before[SAMPLES], entries = mean(c->runs);
    const uint32_t id = tir_var_id(c->pool, loop->var);
    const int64_t step = loop->step ? loop->step : 1,
                  low = loop->between ? (int64_t)c->variables[0][id] : loop->lower[0];
    memcpy(before, c->runs, sizeof before);
    for (int s = 0; s < SAMPLES; s++) {
        const double n = loop->extent[s] > 0 ? (double)loop->extent[s] : 0;
        const int64_t start = loop->between ? (int64_t)c->variables[s][id] : loop->lower[s];
        c->runs[s] *= n;
        c->variables[s][id] = (uint64_t)(start + (int64_t)(n * sample_place(s, c->depth)) * step);
    }
    double all = mean(c->runs);
    if (all > 0 && c->depth < OPEN) {
        open_loop_of(c, loop->kind, id, all / entries);
        open_loop *l = &c->open[c->depth - 1];
        l->low = low, l->step = step, l->between = loop->between;
        memcpy(l->vectors, loop->vectors, sizeof l->vectors);
        c->var_mask[id] = (loop->between ? c->var_mask[id] : 0) | UINT32_C(1) << (c->depth - 1);
        count_body(c, loop + 1, count - 1, body);
        close_loop(c, entries);
    }
    memcpy(c->runs, before, sizeof before);
}

/* Is each sample's loop as long as the first one's, and does it begin at a multiple of the stride? */
static bool is_aligned(const counted_loop *loop, int64_t stride) {
    for (int s = 0; s < SAMPLES; s++)
        if (loop->extent[s] != loop->extent[0] || loop->lower[s] % stride) return false;
    return true;
}

/* A loop that stands for several axes, as tasks do, is counted as loops over these: its variable's values are divided by their strides
 * (c->strides). Loops inside of it need places, too. */
static void count_axes(counter *c, const counted_loop *loop, const tir_stmt *body) {
    counted_loop axes[AXES + 1];
    int count = 0;
    int64_t rest = loop->extent[0];
    for (uint32_t i = 0; i < c->strides.count && count < AXES && c->depth + count < OPEN / 2; i++) {
        const int64_t stride = c->strides.data[i].stride;
        if (c->strides.data[i].var != loop->var || rest % stride || stride >= rest || !is_aligned(loop, stride))
            continue;
        axes[count] = *loop;
        axes[count].step = stride;
        axes[count].between = count > 0;
        for (int s = 0; s < SAMPLES; s++) axes[count].extent[s] = rest / stride;
        count++, rest = stride;
    }
    axes[count] = *loop;
    axes[count].between = count > 0;
    for (int s = 0; s < SAMPLES && count > 0; s++) axes[count].extent[s] = rest;
    count_body(c, axes, count + 1, body);
}

static counted_loop evaluate_loop(const counter *c, const tir_stmt *stmt) {
    counted_loop loop = {.kind = stmt->for_.loop, .var = stmt->for_.var};
    for (int s = 0; s < SAMPLES; s++) {
        loop.lower[s] = evaluate(c, stmt->for_.lower, s);
        loop.extent[s] = evaluate(c, stmt->for_.extent, s);
    }
    return loop;
}

/* ---- vectors: lanes loops with one body that follow each other, also interleaved and in a loop over vectors, are the vectors of one vec
 * loop, and are counted as one loop over all its iterations */

static bool is_loop(const tir_stmt *stmt, tir_loop_kind kind) {
    return stmt && stmt->kind == TIR_FOR && stmt->for_.loop == kind;
}

/* The first lanes loop that the statement consists of; NULL: it consists of something else. */
static const tir_stmt *first_lanes(const tir_stmt *stmt) {
    if (is_loop(stmt, TIR_SERIAL) && stmt->for_.step > 1) stmt = stmt->for_.body;
    if (stmt && stmt->kind == TIR_INTERLEAVE) stmt = stmt->interleave.body;
    return is_loop(stmt, TIR_LANES) ? stmt : NULL;
}

static void add_vectors(const counter *c, counted_loop *loop, const tir_stmt *lanes, int width, double count,
                        int64_t each) {
    int at = 0;
    int64_t active = 0;
    tir_is_const(c->pool, lanes->for_.extent, &active);
    while (at + 1 < WIDTHS && loop->vectors[at].count > 0 && loop->vectors[at].width != width) at++;
    loop->vectors[at] = (vectors){width, loop->vectors[at].count + count};
    for (int s = 0; s < SAMPLES; s++) loop->extent[s] += each * active;
}

/* Adds the lanes loops at the start of the list that have this body, `times` each; returns the statement after them. */
static const tir_stmt *add_lanes(const counter *c, counted_loop *loop, const tir_stmt *list, const tir_stmt *body,
                                 int64_t times) {
    for (; list; list = list->next) {
        const tir_stmt *lanes = first_lanes(list);
        if (!lanes || lanes->for_.body != body) break;
        if (is_loop(list, TIR_SERIAL)) {
            add_lanes(c, loop, list->for_.body, body, times * evaluate(c, list->for_.extent, 0) / list->for_.step);
            continue;
        }
        for (; lanes; lanes = list->kind == TIR_INTERLEAVE ? lanes->next : NULL)
            add_vectors(c, loop, lanes, lanes->for_.width, (double)times, times);
    }
    return list;
}

static counted_loop start_of_lanes(const counter *c, const tir_stmt *first) {
    const tir_expr lower = is_loop(first, TIR_SERIAL) ? first->for_.lower : first_lanes(first)->for_.lower;
    counted_loop loop = {.kind = TIR_LANES, .var = first_lanes(first)->for_.var};
    for (int s = 0; s < SAMPLES; s++) loop.lower[s] = evaluate(c, lower, s);
    return loop;
}

static const tir_stmt *count_lanes(counter *c, const tir_stmt *list) {
    const tir_stmt *body = first_lanes(list)->for_.body;
    counted_loop loop = start_of_lanes(c, list);
    const tir_stmt *rest = add_lanes(c, &loop, list, body, 1);
    count_body(c, &loop, 1, body);
    return rest;
}

/* Rows of a tile of which two share their last vectors: copies of an unrolled loop with the whole vectors of a row each, and rows loops.
 * They are counted as one loop over rows, in which the shared vectors are a part. A shared vector needs a blend of both rows' operand. */
static const tir_stmt *count_rows(counter *c, const tir_stmt *list, const tir_stmt *pair) {
    const tir_stmt *lanes = pair->for_.body, *stmt = list;
    const tir_expr var = pair->for_.var;
    counted_loop loops[] = {evaluate_loop(c, list), start_of_lanes(c, list->for_.body)}, *rows = &loops[0],
                 *row = &loops[1];
    double copies = 0, pairs = 0;
    for (; stmt && stmt->kind == TIR_FOR && stmt->for_.var == var; stmt = stmt->next)
        *(stmt->for_.loop == TIR_ROWS ? &pairs : &copies) += 1;
    rows->kind = TIR_UNROLL;
    for (int s = 0; s < SAMPLES; s++) rows->extent[s] = (int64_t)copies;
    add_lanes(c, row, list->for_.body, lanes->for_.body, 1);
    add_vectors(c, row, lanes, 2 * lanes->for_.width, pairs / copies, 1);
    spend(c, innermost(c), 0, mean(c->runs) * pairs, 0, 0);
    count_body(c, loops, 2, lanes->for_.body);
    return stmt;
}

/* The rows loop among the copies of an unrolled loop at the start of the list; NULL: there is none. */
static const tir_stmt *find_rows(const tir_stmt *list) {
    const tir_stmt *stmt = list;
    if (!is_loop(list, TIR_UNROLL)) return NULL;
    while (stmt && stmt->kind == TIR_FOR && stmt->for_.var == list->for_.var && stmt->for_.loop == TIR_UNROLL)
        stmt = stmt->next;
    const bool found = is_loop(stmt, TIR_ROWS) && stmt->for_.var == list->for_.var;
    return found && is_loop(list->for_.body, TIR_LANES) && list->for_.body->for_.body == stmt->for_.body->for_.body
               ? stmt
               : NULL;
}

static bool depends_on_lane(const counter *c, uint32_t mask) {
    for (int i = 0; i < c->depth; i++)
        if (mask >> i & 1 && c->open[i].kind == TIR_LANES) return true;
    return false;
}

/* A condition that varies between lanes masks both sides; any other one selects a side. */
static void count_if(counter *c, const tir_stmt *stmt) {
    c->epoch++;
    count_value(c, stmt->if_.condition);
    if (depends_on_lane(c, mask_of(c, stmt->if_.condition)) || c->depth == OPEN) {
        c->masks++;
        count_list(c, stmt->if_.body);
        count_list(c, stmt->if_.otherwise);
        c->masks--;
        return;
    }
    double before[SAMPLES], entries = mean(c->runs);
    bool holds[SAMPLES];
    memcpy(before, c->runs, sizeof before);
    for (int s = 0; s < SAMPLES; s++) holds[s] = evaluate(c, stmt->if_.condition, s) & 1;
    for (int side = 0; side < 2; side++) {
        const tir_stmt *list = side ? stmt->if_.otherwise : stmt->if_.body;
        for (int s = 0; s < SAMPLES; s++) c->runs[s] = holds[s] == !side ? before[s] : 0;
        double all = mean(c->runs);
        if (!list || all <= 0) continue;
        open_loop_of(c, TIR_SERIAL, UINT32_MAX, all / entries);
        count_list(c, list);
        close_loop(c, entries);
    }
    memcpy(c->runs, before, sizeof before);
}

static void count_let(counter *c, const tir_stmt *stmt) {
    uint32_t id = tir_var_id(c->pool, stmt->let.var);
    count_value(c, stmt->let.value);
    c->var_mask[id] = mask_of(c, stmt->let.value);
    bool index = tir_dtype_of(c->pool, stmt->let.value) == TIR_INDEX;
    if (index) lib_vec_push(c->arena, &c->lets, stmt);
    for (int s = 0; s < SAMPLES && index; s++) c->variables[s][id] = (uint64_t)let_value(c, stmt, s);
    count_list(c, stmt->let.body);
    c->lets.count -= index;
}

static void count_spill(counter *c, const tir_stmt *stmt) {
    bool *place = &c->spilled[stmt->spill.buffer];
    const bool before = *place;
    *place = true;
    count_list(c, stmt->spill.body);
    *place = before;
}

/* A loop of several iterations of a register tile at a time, and the loop of the last iterations behind it, are counted as one loop over all. */
static const tir_stmt *count_stepped(counter *c, const tir_stmt *stmt) {
    const tir_stmt *copies = stmt->for_.body, *rest = stmt->next;
    counted_loop loop = evaluate_loop(c, stmt);
    loop.var = copies->for_.var;
    const bool more = is_loop(rest, TIR_SERIAL) && rest->for_.var == loop.var && rest->for_.body == copies->for_.body;
    for (int s = 0; s < SAMPLES && more; s++) loop.extent[s] += evaluate(c, rest->for_.extent, s);
    count_axes(c, &loop, copies->for_.body);
    return more ? rest->next : rest;
}

/* Returns the statement after the loop, or after those that are counted with it. */
static const tir_stmt *count_for(counter *c, const tir_stmt *stmt) {
    const tir_stmt *pair = find_rows(stmt);
    if (pair) return count_rows(c, stmt, pair);
    if (first_lanes(stmt)) return count_lanes(c, stmt);
    if (tir_has_steps(stmt)) return count_stepped(c, stmt);
    const counted_loop loop = evaluate_loop(c, stmt);
    count_axes(c, &loop, stmt->for_.body);
    return stmt->next;
}

static void count_list(counter *c, const tir_stmt *stmt) {
    for (const tir_stmt *next; stmt; stmt = next) {
        c->epoch++;
        next = stmt->next;
        switch (stmt->kind) {
        case TIR_FOR: next = count_for(c, stmt); break;
        case TIR_INTERLEAVE: next = count_lanes(c, stmt); break;
        case TIR_SPILL: count_spill(c, stmt); break;
        case TIR_LET: count_let(c, stmt); break;
        case TIR_IF: count_if(c, stmt); break;
        case TIR_STORE: count_store(c, stmt); break;
        case TIR_PREFETCH:
            spend(c, innermost(c), 0, 0, mean(c->runs) * (c->machine->half_units ? 0.5 : 1), 0);
            c->nest.prefetched[stmt->prefetch.buffer] = true;
            break;
        case TIR_COLLECTIVE: /* the cpu has none */
        case TIR_BARRIER:
        case TIR_COMMIT:
        case TIR_WAIT:
        case TIR_COMMENT: break;
        }
    }
}

/* ---- a kernel -------------------------------------------------------------------------------------------------------------------------- */

static void count_phase(counter *c, const tir_phase *phase, double repeats) {
    counted_loop tasks = {.kind = TIR_SERIAL, .var = phase->task};
    for (int s = 0; s < SAMPLES; s++) tasks.extent[s] = evaluate(c, phase->tasks, s);
    for (int s = 0; s < SAMPLES; s++) c->runs[s] = 1;
    double before = c->frames[0].inner;
    count_axes(c, &tasks, phase->body);
    const double cycles = (c->frames[0].inner - before) * repeats;
    c->frames[0].inner = before + cycles;
    c->work->tasks += (double)tasks.extent[0] * repeats;
    c->work->phases += repeats;
    if (tasks.extent[0] > 1) return;
    c->work->single_cycles += cycles;
    c->work->single_phases += repeats;
}

static bool is_divided(const counter *c, tir_expr e, int64_t *by) {
    const tir_node *node = tir_get(c->pool, e);
    return (node->op == TIR_DIV || node->op == TIR_REM) && node->dtype == TIR_INDEX &&
           tir_is_const(c->pool, tir_operand(c->pool, e, 1), by);
}

/* Adds the stride to the others, in descending order, unless it is there. */
static void add_stride(counter *c, axis_stride added) {
    enum { STRIDES = 256 }; /* most strides that are told apart */
    uint32_t at = c->strides.count;
    if (at == STRIDES) return;
    for (uint32_t i = 0; i < c->strides.count; i++)
        if (c->strides.data[i].var == added.var && c->strides.data[i].stride == added.stride) return;
    lib_vec_push(c->arena, &c->strides, added);
    for (; at > 0 && c->strides.data[at - 1].stride < added.stride; at--) c->strides.data[at] = c->strides.data[at - 1];
    c->strides.data[at] = added;
}

/* Finds the strides of all expressions of the pool, also of those that the kernel does not use: a loop that is divided needlessly costs the
 * same. */
static void find_axes(counter *c) {
    /* by node: the variable of which it is a quotient or remainder, and by how much that grows while the node's value grows by one; var 0:
     * of none. Operands come first. */
    axis_stride *unit = LIB_NEW_ARRAY(c->arena, axis_stride, c->pool->nodes.count + 1);
    for (tir_expr e = 1; e < c->pool->nodes.count; e++) {
        int64_t by;
        if (tir_get(c->pool, e)->op == TIR_VAR) unit[e] = (axis_stride){e, 1};
        if (!is_divided(c, e, &by)) continue;
        const axis_stride whole = unit[tir_operand(c->pool, e, 0)];
        axis_stride part = whole;
        if (!whole.var || __builtin_mul_overflow(whole.stride, by, &part.stride)) continue;
        unit[e] = tir_get(c->pool, e)->op == TIR_DIV ? part : whole;
        if (part.stride > 1) add_stride(c, part);
    }
}

static void open_counter(counter *c) {
    size_t nodes = c->pool->nodes.count, variables = c->pool->variables.count;
    for (int s = 0; s < SAMPLES; s++) c->variables[s] = LIB_NEW_ARRAY(c->arena, uint64_t, variables + 1);
    c->var_mask = LIB_NEW_ARRAY(c->arena, uint32_t, variables + 1);
    c->spilled = LIB_NEW_ARRAY(c->arena, bool, c->kernel->buffers.count + 1);
    c->mask = LIB_NEW_ARRAY(c->arena, uint32_t, nodes + 1);
    c->mask_epoch = LIB_NEW_ARRAY(c->arena, uint32_t, nodes + 1);
    c->counted = LIB_NEW_ARRAY(c->arena, uint32_t, nodes + 1);
    c->serials = 1; /* 1: outside of all loops */
    c->frame_count = 1;
    c->nest.arena = c->arena;
    c->nest.line = c->machine->line;
    c->nest.page = c->machine->page;
    c->nest.buffers = c->kernel->buffers.count;
    c->nest.buffer_bytes = LIB_NEW_ARRAY(c->arena, double, c->nest.buffers + 1);
    c->nest.prefetched = LIB_NEW_ARRAY(c->arena, bool, c->nest.buffers + 1);
    find_axes(c);
    cost_loop all = {.parent = -1, .trips = 1};
    lib_vec_push(c->arena, &c->nest.loops, all);
}

void cost_count(lib_arena *arena, const tir_machine *machine, const tir_kernel *scheduled, const target_work *asked,
                cost_work *work) {
    const tir_kernel *kernel = tir_vectorise(arena, scheduled, machine);
    counter c = {.arena = arena,
                 .machine = machine,
                 .rates = &machine->rates,
                 .kernel = kernel,
                 .pool = kernel->pool,
                 .work = work};
    *work = (cost_work){0};
    open_counter(&c);
    if (asked) c.nest.beside = asked->beside, c.nest.handed = asked->handed;
    for (uint32_t p = 0; p < kernel->params.count; p++)
        for (int s = 0; s < SAMPLES; s++)
            c.variables[s][tir_var_id(c.pool, kernel->params.data[p])] = (uint64_t)asked->params[p];
    for (uint32_t b = 0; b < c.nest.buffers; b++) {
        const tir_buffer *buffer = &kernel->buffers.data[b];
        c.nest.buffer_bytes[b] = (double)lib_dtype_size(buffer->dtype);
        for (int d = 0; d < buffer->rank; d++) c.nest.buffer_bytes[b] *= (double)evaluate(&c, buffer->extent[d], 0);
    }
    double repeats = 1;
    for (uint32_t p = 0, left = 0; p < kernel->phases.count; p++) {
        const tir_phase *phase = &kernel->phases.data[p];
        if (left > 0 && --left == 0) repeats = 1;
        if (phase->repeat) {
            repeats = (double)evaluate(&c, phase->repeat, 0);
            left = (uint32_t)phase->repeat_phases;
        }
        count_phase(&c, phase, repeats);
    }
    work->issue_cycles = frame_cycles(&c, &c.frames[0], 1);
    cost_traffic(&c.nest, machine, work->traffic);
}
