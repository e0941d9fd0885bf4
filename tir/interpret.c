/* Runs prepared kernels, with all checks of the header. Memory whose accesses are checked has
 * *cells*: the last writer and reader, with task and iteration of a vec loop. */
#include "tir/arith.h"
#include "tir/interpret_frame.h"
#include "tir/polls.h"
#include "tir/registers.h"

#include <math.h>

/* local shorthand */
typedef tir_frame frame;
typedef tir_placed buffer;
typedef tir_space space;
typedef tir_cell cell;
typedef tir_thread_tag thread_tag;

/* ---- memory */

_Noreturn static void fail(frame *f, const char *what) {
    lib_text text;
    lib_text_init(&text, f->arena);
    lib_text_add(&text, "");
    if (f->step) tir_stmt_print(&text, f->kernel, f->step->stmt, 0);
    size_t line = strcspn(text.data, "\n");
    lib_raise(f->arena->scope, DLC_INTERNAL, "kernel %s: %s, in: %.*s", f->kernel->name, what, (int)line, text.data);
}

_Noreturn static void fail_access(frame *f, const buffer *b, const int64_t *index, const char *what) {
    lib_text text;
    lib_text_init(&text, f->arena);
    lib_text_format(&text, "%s %s[", what, b->info->name);
    for (int i = 0; i < b->info->rank; i++) lib_text_format(&text, "%s%lld", i ? ", " : "", (long long)index[i]);
    lib_text_add(&text, "] of extents [");
    for (int i = 0; i < b->info->rank; i++) lib_text_format(&text, "%s%lld", i ? ", " : "", (long long)b->extent[i]);
    lib_text_add(&text, "]");
    fail(f, text.data);
}

/* Offset in elements of an index, after the bounds check. */
static inline int64_t offset_of(frame *f, const buffer *b, const uint32_t *slots, const char *what) {
    int64_t offset = 0;
    for (int i = 0; i < b->info->rank; i++) {
        int64_t index = (int64_t)f->values[slots[i]];
        if ((uint64_t)index >= (uint64_t)b->extent[i]) {
            int64_t all[16];
            for (int k = 0; k < b->info->rank; k++) all[k] = (int64_t)f->values[slots[k]];
            fail_access(f, b, all, what);
        }
        offset += index * b->stride[i];
    }
    return offset;
}

static void fail_cell(frame *f, const buffer *b, const uint32_t *slots, const char *what) {
    int64_t all[16];
    for (int k = 0; k < b->info->rank; k++) all[k] = (int64_t)f->values[slots[k]];
    fail_access(f, b, all, what);
}

static inline bool same_time(uint64_t a, uint64_t b) {
    return a >> 32 == b >> 32;
}

/* Do two accesses in one run of a vec loop conflict? Not if they are of one iteration, or both part of exact reductions.
 */
static bool lanes_conflict(uint64_t before, uint64_t now) {
    if (!same_time(before, now) || ((before ^ now) & LANE_MANY) == 0) return false;
    return !(before & now & LANE_REDUCTION);
}

static uint64_t join_lanes(uint64_t before, uint64_t now) {
    if (!same_time(before, now)) return now;
    uint64_t who = ((before ^ now) & LANE_MANY) == 0 ? now & LANE_MANY : LANE_MANY;
    return (now >> 32 << 32) | (before & now & LANE_REDUCTION) | who;
}

static int warp_of(thread_tag tag) {
    if (tag.thread >= THREAD_MANY) return -1;
    return (int)(tag.thread >= THREAD_WARPS ? tag.thread - THREAD_WARPS : tag.thread / TIR_WARP);
}

/* Do two accesses by threads of a block, at least one of them a write, conflict? Not if one thread made both, or if a barrier of the block,
 * or of the warp of both threads, lies between them. */
static bool threads_conflict(thread_tag before, thread_tag now) {
    if (before.block != now.block || (before.thread == now.thread && now.thread < THREAD_WARPS)) return false;
    return warp_of(before) < 0 || warp_of(before) != warp_of(now) || before.warp == now.warp;
}

static thread_tag join_threads(thread_tag before, thread_tag now) {
    if (before.block != now.block || before.thread == now.thread) return now;
    int warp = warp_of(before);
    if (warp < 0 || warp != warp_of(now)) {
        now.thread = THREAD_MANY;
        return now;
    }
    if (before.warp == now.warp) now.thread = THREAD_WARPS + (uint32_t)warp;
    return now;
}

/* Why thread `now` may not read a register that `writer` wrote: a register may be read by threads of the writer's warp, by other threads
 * than the writer only after the thread loop that wrote it has ended. NULL: it may. */
static const char *register_flaw(const frame *f, thread_tag writer, thread_tag now) {
    if (!writer.block || writer.thread == THREAD_ALL || writer.thread == now.thread) return NULL;
    if (writer.nest == now.nest) return "a thread reads what another one writes in the same thread loop:";
    if (now.thread == THREAD_ALL)
        return f->threads <= TIR_WARP ? NULL : "outside of thread loops, threads of all warps read a register of one:";
    if (warp_of(writer) != warp_of(now)) return "a thread reads a register of another warp:";
    return NULL;
}

/* An access of an element that an asynchronous store wrote: an error (the result) unless the store's group has been waited for. Then the
 * storing thread sees it, and others after a further barrier of the block: the cell's writer gets the barrier count of the wait. */
static const char *note_async(const frame *f, cell *c, bool writes) {
    if (c->life != f->task_run) return NULL;
    if (c->group > f->async.done)
        return writes ? "a copy that nobody has waited for is under way to"
                      : "nobody has waited for the copy that makes";
    c->thread_writer.block = f->async.blocks.data[c->group];
    c->thread_writer.warp = f->thread.warp; /* barriers of warps do not count */
    c->group = 0;
    return NULL;
}

/* The thread tag of a read: the current thread, or, for a statement that several threads execute alike, all of them. */
static thread_tag reader_of(const frame *f) {
    thread_tag reader = f->thread;
    if (f->alike > 1 && reader.thread < THREAD_WARPS)
        reader.thread = f->alike > TIR_WARP ? THREAD_MANY : THREAD_WARPS + reader.thread / TIR_WARP;
    return reader;
}

/* The part of note_read and note_write for threads of a block; NULL: ordered. */
static const char *note_thread(frame *f, const buffer *b, cell *c, bool writes) {
    if (c->group) {
        const char *early = note_async(f, c, writes);
        if (early) return early;
    }
    const char *flaw = NULL;
    if (!f->thread.block) return NULL;
    const thread_tag now = writes ? f->thread : reader_of(f);
    if (b->info->scope == TIR_SCOPE_REG || b->info->scope == TIR_SCOPE_STACK) {
        if (!writes) flaw = register_flaw(f, c->thread_writer, f->thread);
    } else if (threads_conflict(c->thread_writer, now)) {
        flaw = writes ? "race: two threads of the block write" : "race: no barrier after another thread writes";
    } else if (writes && threads_conflict(c->thread_reader, f->thread)) {
        flaw = "race: a thread writes, and no barrier after another one reads,";
    }
    if (writes)
        c->thread_writer = f->thread;
    else
        c->thread_reader = join_threads(c->thread_reader, now);
    return flaw;
}

static inline char *element_of(const buffer *b, int64_t offset) {
    return b->base + tir_swizzled(b->info->swizzle, offset * b->size);
}

static void note_banks(frame *f, const buffer *b, const char *element, const void *key) {
    const bool shared = b->info->scope == TIR_SCOPE_SHARED;
    if (tir_is_register(b->info) || !f->thread.block || f->thread.thread >= THREAD_MANY) return;
    tir_banks_add(
        f->banks,
        &(tir_bank_note){.key = key,
                         .stmt = f->step->stmt,
                         .run = shared || f->lane ? f->banks->run : 0, /* device memory: in vec loops only */
                         .address = shared ? element - f->spaces.data[SHARED_SPACE].low : (int64_t)(intptr_t)element,
                         .thread = (int32_t)f->thread.thread,
                         .bytes = b->size,
                         .memory = !shared});
}

/* Records a read; returns whether the value is poison. */
static bool note_read(frame *f, const buffer *b, int64_t offset, const tir_instruction *i) {
    const space *s = &f->spaces.data[b->space];
    if (!s->cells) return false;
    cell *c = s->cells + (element_of(b, offset) - s->low) / s->unit;
    bool poison = false;
    for (int64_t n = b->size / s->unit; n > 0; n--, c++) {
        if (s->shared) {
            if (same_time(c->writer, f->tag) && c->writer != f->tag)
                fail_cell(f, b, i->operands, "race: another task of the phase writes");
            bool other = same_time(c->reader, f->tag) && c->reader != f->tag;
            c->reader = other ? f->tag | MANY : f->tag;
        }
        const char *flaw = note_thread(f, b, c, false);
        if (flaw) fail_cell(f, b, i->operands, flaw);
        if (f->lane) {
            uint64_t mine = f->lane | (i->reduction ? LANE_REDUCTION : 0);
            if (lanes_conflict(c->lane_writer, mine))
                fail_cell(f, b, i->operands, "vec loop: another iteration writes");
            c->lane_reader = join_lanes(c->lane_reader, mine);
        }
        if (s->scratch)
            poison =
                poison || c->owner != b->info - f->kernel->buffers.data + 1 || (s->per_task && c->life != f->task_run);
    }
    return poison;
}

/* The part of note_write for tasks of a phase. */
static void note_task_write(frame *f, const buffer *b, cell *c, const tir_step *step) {
    if (same_time(c->writer, f->tag) && c->writer != f->tag)
        fail_cell(f, b, step->index, "race: two tasks of the phase write");
    if (same_time(c->reader, f->tag) && c->reader != f->tag)
        fail_cell(f, b, step->index, "race: a task of the phase writes what another one reads,");
    c->writer = f->tag;
}

/* The part of note_write for iterations of a vec loop. */
static void note_lane_write(frame *f, const buffer *b, cell *c, const tir_step *step) {
    uint64_t mine = f->lane | (step->reduction ? LANE_REDUCTION : 0);
    if (lanes_conflict(c->lane_writer, mine) || lanes_conflict(c->lane_reader, mine))
        fail_cell(f, b, step->index, "vec loop: two iterations touch and one writes");
    c->lane_writer = join_lanes(c->lane_writer, mine);
}

static void note_write(frame *f, const buffer *b, int64_t offset, const tir_step *step, bool poison) {
    const space *s = &f->spaces.data[b->space];
    if (!s->cells) return;
    cell *c = s->cells + (element_of(b, offset) - s->low) / s->unit;
    for (int64_t n = b->size / s->unit; n > 0; n--, c++) {
        if (s->shared) note_task_write(f, b, c, step);
        const char *flaw = note_thread(f, b, c, true);
        if (flaw) fail_cell(f, b, step->index, flaw);
        if (f->lane) note_lane_write(f, b, c, step);
        if (f->options->stored_once && c->owner && b->info->scope == TIR_SCOPE_ARG && !b->info->read)
            fail_cell(f, b, step->index, "stored before:");
        c->owner = poison ? 0 : (uint32_t)(b->info - f->kernel->buffers.data) + 1;
        c->life = f->task_run;
        c->group = step->stmt->kind == TIR_STORE && step->stmt->store.async ? f->async.open : 0;
    }
}

/* ---- expressions */

static inline float f32_of(uint64_t bits) {
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return value;
}
static inline uint64_t bits_of_f32(float value) {
    uint32_t low;
    memcpy(&low, &value, sizeof low);
    return low;
}
static inline double f64_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline uint64_t bits_of_f64(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline int64_t floor_divide(int64_t x, int64_t y) {
    if (y <= 0) return 0;
    return x / y - (x % y < 0);
}
static inline int64_t floor_modulo(int64_t x, int64_t y) {
    if (y <= 0) return 0;
    return x % y + (x % y < 0 ? y : 0);
}

static void load(frame *f, const tir_instruction *i) {
    const buffer *b = &f->buffers[i->buffer];
    const int rank = b->info->rank;
    if (i->guarded) {
        if (i->taints && f->taint[i->operands[rank]]) fail(f, "the guard of a load is poison");
        if (!f->values[i->operands[rank]]) {
            f->values[i->target] = f->values[i->operands[rank + 1]];
            f->taint[i->target] = f->taint[i->operands[rank + 1]];
            return;
        }
    }
    bool poison = false;
    if (i->taints)
        for (int k = 0; k < rank; k++)
            if (f->taint[i->operands[k]]) fail(f, "an index of a load is poison");
    int64_t offset = offset_of(f, b, i->operands, "out of bounds: load of");
    if (f->options->check) poison = note_read(f, b, offset, i);
    const char *element = element_of(b, offset);
    if (f->banks) note_banks(f, b, element, i);
    f->taint[i->target] = poison;
    if (i->dtype == DLC_F32) {
        float value;
        memcpy(&value, element, sizeof value);
        f->values[i->target] = bits_of_f32(value);
    } else {
        f->values[i->target] = tir_bits_load(i->dtype, element);
    }
}

static void general(frame *f, const tir_instruction *i) {
    uint64_t operands[TIR_OPERANDS_MAX];
    for (int k = 0; k < i->count; k++) operands[k] = f->values[i->operands[k]];
    f->values[i->target] = tir_arith((tir_op)i->op, i->dtype, i->from, operands, i->count, true);
}

/* Poison propagates from any operand; through a select only from the condition and the selected operand. */
static void flow_taint(frame *f, const tir_instruction *i) {
    uint8_t taint = 0;
    if (i->op == TIR_SELECT)
        taint = f->taint[i->x] | (f->values[i->x] ? f->taint[i->y] : f->taint[i->z]);
    else
        for (int k = 0; k < i->count; k++) taint |= f->taint[i->operands[k]];
    f->taint[i->target] = taint;
}

/* Operand and result types of the classes of TIR_FAST_TABLE. */
#define OPERANDS(type, convert)                                                  \
    const type x = convert(v[i->x]), y = convert(v[i->y]), z = convert(v[i->z]); \
    (void)x, (void)y, (void)z
#define AS_IS(bits) (bits)
#define AS_SIGNED(bits) ((int64_t)(bits))
#define RUN_WORD(value)        \
    OPERANDS(uint64_t, AS_IS); \
    v[i->target] = (value)
#define RUN_I32(value)         \
    OPERANDS(uint64_t, AS_IS); \
    v[i->target] = (uint64_t)(int64_t)(int32_t)(uint32_t)(value)
#define RUN_SIGNED(value)         \
    OPERANDS(int64_t, AS_SIGNED); \
    v[i->target] = (uint64_t)(value)
#define RUN_INDEX RUN_SIGNED
#define RUN_F32(value)       \
    OPERANDS(float, f32_of); \
    v[i->target] = bits_of_f32(value)
#define RUN_F32_TRUTH(value) \
    OPERANDS(float, f32_of); \
    v[i->target] = (value)
#define RUN_F64(value)        \
    OPERANDS(double, f64_of); \
    v[i->target] = bits_of_f64(value)
#define RUN_F64_TRUTH(value)  \
    OPERANDS(double, f64_of); \
    v[i->target] = (value)

static void run_code(frame *f, const tir_code_list *list) {
    if (!list->count) return; /* also no data */
    uint64_t *const v = f->values;
    const tir_instruction *i = list->data, *end = i + list->count;
    f->since_poll += list->count;
    for (; i < end; i++) {
        switch (i->code) {
#define X(class_, op_, value)         \
    case TIR_FAST_##class_##_##op_: { \
        RUN_##class_(value);          \
        break;                        \
    }
            TIR_FAST_TABLE(X)
#undef X
        case TIR_CODE_LOAD: load(f, i); continue;
        case TIR_CODE_CAST: v[i->target] = tir_arith_cast(i->dtype, i->from, v[i->x]); break;
        default: general(f, i); break;
        }
        if (i->taints) flow_taint(f, i);
    }
}

/* ---- statements */

static void run_step(frame *f, const tir_step *step);
static void run_steps(frame *f, const tir_step *step);

/* Records a cancellation check, or the end of a task. */
static void note_poll(frame *f) {
    tir_poll_report *report = f->options->polling;
    if (report) {
        report->polls++;
        report->work += f->since_poll;
        if (f->since_poll > report->longest) report->longest = f->since_poll;
    }
    f->since_poll = 0;
}

static void poll(frame *f) {
    note_poll(f);
    if (f->options->is_over && f->options->is_over(f->options->user))
        lib_raise(f->arena->scope, DLC_CANCELLED, "kernel %s: cancelled", f->kernel->name);
}

static void run_store(frame *f, const tir_step *step) {
    f->since_poll++;
    const buffer *b = &f->buffers[step->stmt->store.buffer];
    bool poison = step->taints && f->taint[step->first];
    if (step->taints)
        for (int k = 0; k < b->info->rank; k++)
            if (f->taint[step->index[k]]) fail(f, "an index of a store is poison");
    int64_t offset = offset_of(f, b, step->index, "out of bounds: store to");
    if (poison && b->info->scope == TIR_SCOPE_ARG) fail_cell(f, b, step->index, "poison is stored to");
    if (f->options->check) note_write(f, b, offset, step, poison);
    char *element = element_of(b, offset);
    if (f->banks) note_banks(f, b, element, step);
    if (b->info->dtype == DLC_F32) {
        const uint32_t low = (uint32_t)f->values[step->first];
        memcpy(element, &low, sizeof low);
    } else {
        tir_bits_store((tir_dtype)b->info->dtype, element, f->values[step->first]);
    }
}

static void run_threads(frame *f, const tir_step *step) {
    const thread_tag around = f->thread;
    const uint32_t alike = f->alike;
    const int64_t lower = (int64_t)f->values[step->first], extent = (int64_t)f->values[step->second];
    const uint32_t base = around.thread == THREAD_ALL ? 0 : around.thread;
    if (base + extent * step->threads > THREAD_LIMIT) fail(f, "more threads than a block can have");
    if (step->nest) f->nests++;
    f->alike = (uint32_t)step->threads;
    for (int64_t i = 0; i < extent; i++) {
        int64_t at = f->options->reverse_lanes ? extent - 1 - i : i;
        f->thread.thread = base + (uint32_t)(at * step->threads);
        f->thread.warp = f->warps[f->thread.thread / TIR_WARP];
        f->thread.nest = f->nests;
        f->values[step->variable] = (uint64_t)(lower + at);
        f->step = step;
        run_code(f, &step->bound);
        run_steps(f, step->body);
    }
    f->thread = around;
    f->alike = alike;
    f->thread.warp = f->warps[base / TIR_WARP];
    if (f->banks && step->nest) tir_banks_end(f->banks);
}

static void run_loop(frame *f, const tir_step *step);

/* Runs a loop. Banks are counted with one time step for all accesses in a vec or unrolled loop, which may become vectors; a serial loop
 * inside it ends that. */
static void run_for(frame *f, const tir_step *step) {
    if (f->banks && !step->threads) {
        const uint64_t around = f->banks->run;
        const bool ordered = step->stmt->for_.loop == TIR_SERIAL;
        f->banks->run = ordered ? 0 : around ? around : ++f->banks->runs;
        run_loop(f, step);
        f->banks->run = around;
        return;
    }
    run_loop(f, step);
}

/* The lanes loops from here on are lanes of one vec loop, none of which accesses what another one writes. False: lanes are not checked. */
static bool begin_group(frame *f) {
    if (!f->options->check || f->lane || f->group) return false;
    f->group = ++f->lane_runs << 32;
    f->grouped = 0;
    return true;
}

/* The run to which the lanes of a loop belong; 0: they are not checked, or the loop is inside of a lane. */
static uint64_t begin_lanes(frame *f, bool vec, int64_t extent) {
    const bool outermost = vec && f->options->check && f->lane == 0 && extent > 1 && extent < (int64_t)LANE_MANY;
    return vec && f->group ? f->group : outermost ? ++f->lane_runs << 32 : 0;
}

/* run: of its lanes, the first of which is number `first`, or 0 (begin_lanes) */
static void run_iterations(frame *f, const tir_step *step, int64_t trips, uint64_t run, uint64_t first) {
    const int64_t lower = (int64_t)f->values[step->first];
    const tir_loop_kind kind = step->stmt->for_.loop;
    const bool reverse = (kind == TIR_VEC || kind == TIR_LANES || kind == TIR_ROWS) && f->options->reverse_lanes;
    for (int64_t i = 0; i < trips; i++) {
        int64_t at = reverse ? trips - 1 - i : i;
        if (run) f->lane = run | (first + (uint64_t)at);
        f->values[step->variable] = (uint64_t)(lower + at * step->stmt->for_.step);
        f->step = step;
        run_code(f, &step->bound);
        run_steps(f, step->body);
        if (step->poll && (i + 1) % step->poll == 0 && i + 1 < trips) poll(f);
    }
}

static void run_loop(frame *f, const tir_step *step) {
    if (step->threads) {
        run_threads(f, step);
        return;
    }
    if (step->taints && (f->taint[step->first] | f->taint[step->second])) fail(f, "a bound of a loop is poison");
    const int64_t extent = (int64_t)f->values[step->second];
    const tir_loop_kind kind = step->stmt->for_.loop;
    const bool vec = kind == TIR_VEC || kind == TIR_LANES;
    const bool group = kind == TIR_ROWS && begin_group(f);
    const uint64_t run = begin_lanes(f, vec, extent);
    const uint64_t first = f->group ? f->grouped : 0;
    const int64_t trips = extent > 0 ? (extent - 1) / step->stmt->for_.step + 1 : 0;
    if (lib_is_raised(f->options->cancel))
        lib_raise(f->arena->scope, DLC_CANCELLED, "kernel %s: cancelled", f->kernel->name);
    run_iterations(f, step, trips, run, first);
    if (run) f->lane = 0;
    if (run && f->group) f->grouped = first + (uint64_t)trips;
    if (group) f->group = 0;
}

/* Lanes loops side by side. */
static void run_interleave(frame *f, const tir_step *step) {
    const bool group = begin_group(f);
    int count = 0;
    for (const tir_step *part = step->body; part; part = part->next) count++;
    for (int i = 0; i < count; i++) {
        const tir_step *part = step->body;
        for (int k = f->options->reverse_lanes ? count - 1 - i : i; k > 0; k--) part = part->next;
        run_step(f, part);
    }
    if (group) f->group = 0;
}

/* ---- collective statements */

/* Values of a collective statement, by place and element. */
struct tir_collective_values {
    double value[TIR_UNIT_PLACES][TIR_UNIT_ELEMENTS];
    /* of the place read last, then of the result */
    uint64_t bits[TIR_UNIT_ELEMENTS];
    bool poison[TIR_UNIT_PLACES][TIR_UNIT_ELEMENTS];
};

/* A collective statement being executed. */
typedef struct collective_run {
    frame *f;
    const tir_step *step;
    const tir_unit *unit;
    /* its first thread */
    thread_tag first;
    struct tir_collective_values *values;
} collective_run;

/* An element's number: the variables that its place uses, the last one fastest. */
static int element_number(const collective_run *r, int place, const int *point) {
    int number = 0;
    for (int v = 0; v < TIR_UNIT_VARS; v++)
        if (r->unit->place[place].uses >> v & 1) number = number << r->unit->bits[v] | point[v];
    return number;
}

/* Fails unless the lane that the unit names for the element wrote it: a matrix instruction reads no registers of other lanes. */
static void check_owner(collective_run *r, const buffer *b, int place, const cell *c, const int *point) {
    const thread_tag writer = c->thread_writer;
    const int lane = tir_fragment_lane(r->unit, place, point);
    if (!writer.block || writer.thread == THREAD_ALL || writer.thread == r->first.thread + (uint32_t)lane) return;
    fail_cell(r->f, b, r->step->collective->index[place],
              lib_arena_format(r->f->arena, "lane %d gives what thread %u has written:", lane, writer.thread));
}

static void run_element(collective_run *r, int place, bool writes, const int *point) {
    frame *f = r->f;
    const uint32_t *index = r->step->collective->index[place];
    const buffer *b = &f->buffers[r->step->stmt->collective.place[place].buffer];
    const int n = element_number(r, place, point);
    const int64_t offset = offset_of(f, b, index, "out of bounds: place of");
    char *element = element_of(b, offset);
    if (f->banks && r->unit->place[place].memory && point[2] == 0) /* each row has a lane that supplies its address */
        tir_banks_add(f->banks,
                      &(tir_bank_note){.key = r->step,
                                       .stmt = r->step->stmt,
                                       .run = f->banks->run,
                                       .address = element - f->spaces.data[SHARED_SPACE].low,
                                       .thread = (int32_t)r->first.thread + (point[0] << r->unit->bits[1]) + point[1],
                                       .bytes = b->size << r->unit->bits[2]});
    f->thread = r->first;
    if (f->thread.block) f->thread.thread += (uint32_t)tir_fragment_lane(r->unit, place, point);
    if (f->options->check && writes) {
        const tir_step store = {.stmt = r->step->stmt, .index = index};
        note_write(f, b, offset, &store, r->values->poison[0][n]);
    } else if (f->options->check) {
        const space *s = &f->spaces.data[b->space];
        if (s->cells && !r->unit->place[place].memory)
            check_owner(r, b, place, s->cells + (element - s->low) / s->unit, point);
        r->values->poison[place][n] = note_read(f, b, offset, &(tir_instruction){.operands = index});
    }
    const tir_dtype dtype = (tir_dtype)b->info->dtype;
    if (writes) {
        tir_bits_store(dtype, element, r->values->bits[n]);
    } else {
        r->values->bits[n] = tir_bits_load(dtype, element);
        r->values->value[place][n] = tir_bits_to_f64(dtype, r->values->bits[n]);
    }
}

/* Visits all elements of a place, by the variables that it uses. */
static void run_place(collective_run *r, int place, bool writes) {
    const tir_collective_step *step = r->step->collective;
    int limit[TIR_UNIT_VARS], p[TIR_UNIT_VARS];
    for (int v = 0; v < TIR_UNIT_VARS; v++) limit[v] = r->unit->place[place].uses >> v & 1 ? 1 << r->unit->bits[v] : 1;
    for (p[0] = 0; p[0] < limit[0]; p[0]++) {
        r->f->values[step->variable[0]] = (uint64_t)p[0];
        run_code(r->f, &step->bound[0]);
        for (p[1] = 0; p[1] < limit[1]; p[1]++) {
            r->f->values[step->variable[1]] = (uint64_t)p[1];
            run_code(r->f, &step->bound[1]);
            for (p[2] = 0; p[2] < limit[2]; p[2]++) {
                r->f->values[step->variable[2]] = (uint64_t)p[2];
                run_code(r->f, &step->bound[2]);
                run_element(r, place, writes, p);
            }
        }
    }
}

static void multiply_accumulate(collective_run *r) {
    const int rows = 1 << r->unit->bits[0], columns = 1 << r->unit->bits[1], steps = 1 << r->unit->bits[2];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            double sum = r->values->value[0][i * columns + j];
            bool poison = r->values->poison[0][i * columns + j];
            for (int k = 0; k < steps; k++) {
                sum += r->values->value[1][i * steps + k] * r->values->value[2][j * steps + k];
                poison = poison || r->values->poison[1][i * steps + k] || r->values->poison[2][j * steps + k];
            }
            r->values->bits[i * columns + j] = bits_of_f32((float)sum);
            r->values->poison[0][i * columns + j] = poison;
        }
}

static void run_collective(frame *f, const tir_step *step) {
    const thread_tag around = f->thread;
    if (!f->collective) f->collective = LIB_NEW(f->arena, struct tir_collective_values);
    collective_run r = {f, step, step->stmt->collective.unit, around, f->collective};
    if (around.thread == THREAD_ALL) r.first.thread = 0;
    const uint32_t lanes = (uint32_t)r.unit->lanes;
    if (around.block && (r.first.thread % lanes || (around.thread == THREAD_ALL && f->threads > lanes)))
        fail(f, "a collective statement is not executed by one whole warp");
    r.first.nest = ++f->nests;
    if (r.unit->kind == TIR_MULTIPLY) {
        for (int place = 0; place < r.unit->places; place++) run_place(&r, place, false);
        multiply_accumulate(&r);
    } else {
        run_place(&r, 1, false);
        memcpy(r.values->poison[0], r.values->poison[1], sizeof r.values->poison[0]);
    }
    run_place(&r, 0, true);
    f->thread = around;
    if (f->banks) tir_banks_end(f->banks);
}

static void run_barrier(frame *f) {
    if (f->thread.thread == THREAD_ALL)
        f->thread.block = ++f->blocks;
    else
        f->thread.warp = ++f->warps[f->thread.thread / TIR_WARP];
}

/* Completes all but the latest `groups` committed groups. For each group completed here, records the current barrier count: its stores are
 * visible to their own threads now, to others after the block's next barrier. */
static void run_wait(frame *f, uint32_t groups) {
    tir_async_groups *a = &f->async;
    while (a->done + groups + 1 < a->open) {
        a->done++;
        while (a->blocks.count <= a->done) lib_vec_push(f->arena, &a->blocks, 0);
        a->blocks.data[a->done] = f->thread.block;
    }
}

static void run_step(frame *f, const tir_step *step) {
    const thread_tag around = f->thread;
    const uint32_t alike = f->alike;
    f->step = step;
    if (step->single_thread && f->thread.thread == THREAD_ALL) f->thread.thread = 0;
    if (step->single_thread) f->alike = 1;
    run_code(f, &step->before);
    switch (step->stmt->kind) {
    case TIR_STORE:
        run_store(f, step);
        f->thread = around;
        f->alike = alike;
        break;
    case TIR_FOR: run_for(f, step); break;
    case TIR_INTERLEAVE: run_interleave(f, step); break;
    case TIR_SPILL: run_steps(f, step->body); break;
    case TIR_COLLECTIVE: run_collective(f, step); break;
    case TIR_BARRIER: run_barrier(f); break;
    case TIR_COMMIT: f->async.open++; break;
    case TIR_WAIT: run_wait(f, (uint32_t)step->stmt->wait.groups); break;
    case TIR_LET:
        f->values[step->variable] = f->values[step->first];
        f->taint[step->variable] = step->taints && f->taint[step->first];
        run_code(f, &step->bound);
        run_steps(f, step->body);
        break;
    default:
        if (step->taints && f->taint[step->first]) fail(f, "the condition of an if is poison");
        run_steps(f, f->values[step->first] ? step->body : step->otherwise);
        break;
    }
}

static void run_steps(frame *f, const tir_step *step) {
    for (; step; step = step->next) run_step(f, step);
}

/* ---- setting up */

/* Evaluates nodes that depend on parameters only. */
static void enter(frame *f, const int64_t *params) {
    const tir_program *program = f->program;
    f->values = LIB_NEW_ARRAY(f->arena, uint64_t, program->slots);
    f->taint = LIB_NEW_ARRAY(f->arena, uint8_t, program->slots);
    for (uint32_t i = 0; i < program->constants.count; i++)
        f->values[program->constants.data[i]] = program->constant_bits.data[i];
    for (uint32_t i = 0; i < f->kernel->params.count; i++) {
        const tir_variable *v = tir_variable_of(f->kernel->pool, f->kernel->params.data[i]);
        if (v->dtype == TIR_INDEX &&
            (params[i] < v->low || params[i] > v->high || (v->multiple > 1 && params[i] % v->multiple)))
            lib_raise(f->arena->scope, DLC_INTERNAL,
                      "kernel %s: parameter %s = %lld is not one of %lld..%lld, a multiple of %lld", f->kernel->name,
                      v->name, (long long)params[i], (long long)v->low, (long long)v->high, (long long)v->multiple);
        f->values[program->params[i]] = (uint64_t)params[i];
    }
    run_code(f, &program->entry);
}

static void frame_init(frame *f, lib_arena *arena, const tir_program *program, void *const *arguments,
                       const int64_t *params, char *workspace, char *local, const tir_interpret_options *options,
                       bool partial) {
    *f = (frame){.program = program, .kernel = program->kernel, .arena = arena, .options = options, .partial = partial};
    enter(f, params);
    tir_place_buffers(f, arguments, workspace, local);
    if (options->check) tir_place_cells(f);
    if (!options->banks) return;
    f->banks = LIB_NEW(arena, tir_banks);
    f->banks->arena = arena;
}

/* ---- tasks, phases */

static void zero_buffers(frame *f) {
    for (uint32_t i = 0; i < f->kernel->buffers.count; i++) {
        const buffer *b = &f->buffers[i];
        const space *s = &f->spaces.data[b->space];
        if (!b->info->zero_initialised || !s->per_task) continue;
        const int64_t bytes = tir_compact_elements(f, b) * b->size;
        if (bytes) memset(b->base, 0, (size_t)bytes);
        cell *c = s->cells ? s->cells + (b->base - s->low) / s->unit : NULL;
        for (int64_t n = 0; c && n < bytes / s->unit; n++, c++) {
            c->owner = i + 1;
            c->life = f->task_run;
        }
    }
}

static void run_task(frame *f, const tir_program_phase *phase, int64_t task) {
    f->task_run++;
    f->tag = (uint64_t)f->phase_run << 32 | (uint32_t)(task % MANY);
    f->values[phase->task] = (uint64_t)task;
    f->step = NULL;
    f->async.open = 1;
    f->async.done = 0;
    f->threads = phase->threads;
    f->thread = (thread_tag){0};
    if (phase->threads > 1) f->thread = (thread_tag){.block = ++f->blocks, .thread = THREAD_ALL};
    zero_buffers(f);
    run_code(f, &phase->task_bound);
    run_steps(f, phase->body);
}

static void run_phase(frame *f, int number, int64_t iteration, int64_t begin, int64_t end) {
    const tir_program_phase *phase = &f->program->phases[number];
    f->phase_run++;
    f->lane = 0;
    if (phase->iteration) f->values[phase->iteration] = (uint64_t)iteration;
    run_code(f, &phase->iteration_bound);
    for (int64_t i = begin; i < end; i++) {
        if (lib_is_raised(f->options->cancel))
            lib_raise(f->arena->scope, DLC_CANCELLED, "kernel %s: cancelled", f->kernel->name);
        run_task(f, phase, f->options->reverse_tasks ? end - 1 - (i - begin) : i);
        if (phase->poll && (i + 1 - begin) % phase->poll == 0 && i + 1 < end) poll(f);
    }
    note_poll(f);
}

static void run_all(frame *f) {
    const int count = (int)f->kernel->phases.count;
    for (int first = 0, phases; first < count; first += phases) {
        const tir_phase *info = &f->kernel->phases.data[first];
        const tir_program_phase *phase = &f->program->phases[first];
        phases = info->repeat ? info->repeat_phases : 1;
        if (phases < 1 || phases > count - first)
            lib_raise(f->arena->scope, DLC_INTERNAL, "kernel %s: a repeat covers %d phases, %d are left",
                      f->kernel->name, phases, count - first);
        const int64_t repeat = info->repeat ? (int64_t)f->values[phase->repeat] : 1;
        for (int64_t t = 0; t < repeat; t++)
            for (int p = first; p < first + phases; p++)
                run_phase(f, p, t, 0, (int64_t)f->values[f->program->phases[p].tasks]);
    }
}

/* Checks that each element of a write-only argument has been stored. */
static void check_stored(frame *f) {
    f->step = NULL;
    for (uint32_t i = 0; i < f->kernel->buffers.count; i++) {
        const buffer *b = &f->buffers[i];
        const space *s = &f->spaces.data[b->space];
        if (b->info->scope != TIR_SCOPE_ARG || !b->info->written || b->info->read || !s->cells) continue;
        int64_t index[16] = {0}, offset = 0, left = tir_compact_elements(f, b);
        for (; left > 0; left--) {
            if (!s->cells[(b->base + offset * b->size - s->low) / s->unit].owner)
                fail_access(f, b, index, "nothing is stored to");
            for (int d = b->info->rank - 1; d >= 0; d--) {
                offset += b->stride[d];
                if (++index[d] < b->extent[d]) break;
                offset -= index[d] * b->stride[d];
                index[d] = 0;
            }
        }
    }
}

static const tir_interpret_options default_options;

static void interpret(lib_arena *arena, const tir_kernel *kernel, void *const *arguments, const int64_t *params,
                      const tir_interpret_options *options) {
    const tir_program *program =
        tir_program_new_polling(arena, kernel, options->poll_work ? options->poll_work : TIR_POLL_WORK_INTERPRETED);
    frame sizes = {.program = program, .kernel = kernel, .arena = arena, .options = options}, f;
    enter(&sizes, params);
    char *workspace = tir_scratch_block(&sizes, tir_slot_bytes(&sizes, program->workspace));
    char *local = tir_scratch_block(&sizes, tir_slot_bytes(&sizes, program->local));
    frame_init(&f, arena, program, arguments, params, workspace, local, options, false);
    run_all(&f);
    if (options->stored_once) check_stored(&f);
    if (options->banks) tir_banks_report(f.banks, kernel, options->banks);
}

dlc_status tir_interpret(const tir_kernel *kernel, void *const *arguments, const int64_t *params,
                         const tir_interpret_options *options, const dlc_allocator *allocator, lib_error *error) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, allocator, &scope);
    const lib_fp_state state = lib_fp_enter();
    if (LIB_ENTER(&scope)) interpret(&arena, kernel, arguments, params, options ? options : &default_options);
    lib_fp_restore(state);
    lib_arena_free(&arena);
    if (scope.error.status == DLC_OK) return DLC_OK;
    return lib_fail(error, scope.error.status, "%s", scope.error.message);
}

dlc_status tir_program_run_tasks(const tir_program *program, int phase, int64_t iteration, int64_t begin, int64_t end,
                                 void *const *arguments, const int64_t *params, char *workspace, char *local,
                                 const tir_interpret_options *options, const dlc_allocator *allocator,
                                 lib_error *error) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, allocator, &scope);
    const lib_fp_state state = lib_fp_enter();
    if (LIB_ENTER(&scope)) {
        frame f;
        frame_init(&f, &arena, program, arguments, params, workspace, local, options ? options : &default_options,
                   true);
        run_phase(&f, phase, iteration, begin, end);
    }
    lib_fp_restore(state);
    lib_arena_free(&arena);
    if (scope.error.status == DLC_OK) return DLC_OK;
    return lib_fail(error, scope.error.status, "%s", scope.error.message);
}
