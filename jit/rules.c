/* Schedules by the target's rules, and lowering by them. Where the rules doubt their own model (tir_doubt), the kernels with the other
 * candidates are lowered, too, and the target's cost model decides. It decides as for one thread, so that results do not depend on the
 * context's threads. */
#include "jit/internal.h"

#include "tir/choice.h"

#include <math.h>

/* ---- what the rules doubt */

/* Returns the predicted cycles of the kernel that the rules schedule with the pins and decisions of `choices` and the decisions more[count]; 0 if
 * the target has no cost model; INFINITY if lowering refuses the schedule. If raised is not NULL, the candidates that the rules doubt in this
 * schedule are appended to *raised. */
static double price(const jit_rules *rules, lib_arena *arena, const tir_region *canonical, const tir_choices *choices,
                    const tir_pin *more, int count, tir_pins *raised, const tir_lower_options *options) {
    const tir_lower_options plain = {.machine = options->machine};
    lib_arena trial, *nodes = canonical->pool->arena; /* expressions stay in the region's pool */
    lib_scope scope, *const outer = nodes->scope, *const callers = arena->scope;
    volatile double cycles = INFINITY;
    lib_arena_init(&trial, arena->allocator, &scope);
    nodes->scope = arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        tir_choices with = {.arena = &trial, .pins = choices->pins, .decide = raised != NULL};
        tir_schedule schedule;
        target_work work = {.params = jit_usual_sizes(&trial, canonical)};
        target_cost cost = {.threads = 1};
        for (uint32_t i = 0; i < choices->decided.count; i++)
            lib_vec_push(&trial, &with.decided, choices->decided.data[i]);
        for (int i = 0; i < count; i++) lib_vec_push(&trial, &with.decided, more[i]);
        tir_schedule_init(&schedule, &trial);
        schedule.choices = &with;
        rules->by->schedule(plain.machine, 1, tir_region_copy(&trial, canonical), &schedule);
        for (uint32_t i = 0; i < with.doubts.count; i++) {
            const tir_pin *d = &with.doubts.data[i];
            const tir_pin kept = {lib_arena_string(arena, d->stage), d->what, lib_arena_string(arena, d->value)};
            lib_vec_push(arena, raised, kept);
        }
        const tir_kernel *kernel = tir_lower(&trial, canonical, &schedule, &plain);
        if (rules->by->cost) rules->by->cost(rules->device, &trial, kernel, &work, 1, &cost);
        cycles = cost.cycles;
    }
    nodes->scope = outer;
    arena->scope = callers;
    lib_arena_free(&trial);
    if (lib_is_circumstance(scope.error.status)) lib_raise_error(arena->scope, &scope.error);
    return cycles;
}

static bool is_of_choice(const tir_pin *doubt, const tir_pin *other) {
    return strcmp(doubt->stage, other->stage) == 0 && strcmp(doubt->what, other->what) == 0;
}

/* Is one of the pins of the same choice? */
static bool is_among(const tir_pins *pins, const tir_pin *choice) {
    for (uint32_t i = 0; i < pins->count; i++)
        if (is_of_choice(&pins->data[i], choice)) return true;
    return false;
}

/* A candidate of a doubted choice, and one of a choice that arises with it (count 2); `raised`: what the rules doubt in that schedule. */
typedef struct candidate {
    tir_pin pins[2];
    int count;
    double cycles;
    tir_pins raised;
} candidate;

/* Sets *best to the candidate if it costs less than *best and the limit; if it costs a little more than the limit, to it with one candidate of
 * a choice that the rules doubt with it and that is not among `doubts`. */
static void try_candidate(const jit_rules *rules, lib_arena *arena, const tir_region *canonical,
                          const tir_choices *choices, const tir_pins *doubts, const tir_pin *doubt, double limit,
                          candidate *best, const tir_lower_options *options) {
    const double NEAR = 1.5; /* times the limit: a candidate that costs more is not looked into */
    candidate c = {.pins = {*doubt}, .count = 1};
    c.cycles = price(rules, arena, canonical, choices, c.pins, 1, &c.raised, options);
    if (c.cycles < limit && c.cycles < best->cycles) *best = c;
    if (c.cycles < limit || c.cycles >= NEAR * limit) return;
    for (uint32_t i = 0; i < c.raised.count; i++) {
        if (is_among(doubts, &c.raised.data[i])) continue;
        candidate pair = {.pins = {*doubt, c.raised.data[i]}, .count = 2};
        pair.cycles = price(rules, arena, canonical, choices, pair.pins, 2, &pair.raised, options);
        if (pair.cycles < limit && pair.cycles < best->cycles) *best = pair;
    }
}

/* Decides the choices that the rules doubt for one thread: takes the candidate whose kernel costs least of all, then the best of those that are
 * doubted in its schedule, and so on. (Were they decided in the order in which the rules make them, a form that gains a little would keep
 * another axis of the vectors from being tried, which gains more.) */
static void decide(const jit_rules *rules, lib_arena *arena, const tir_region *canonical, tir_choices *choices,
                   const tir_lower_options *options) {
    enum { DECISIONS_MOST = 6 };
    const double GAIN = 0.9; /* predictions for candidates of one region are off by about a tenth */
    candidate now = {.count = 0};
    now.cycles = price(rules, arena, canonical, choices, NULL, 0, &now.raised, options);
    if (isinf(now.cycles)) return; /* lowering refuses the schedule: the caller finds out, and tells */
    for (int n = 0; n < DECISIONS_MOST; n++) {
        candidate best = {.cycles = INFINITY};
        for (uint32_t i = 0; i < now.raised.count; i++)
            if (!is_among(&choices->decided, &now.raised.data[i]))
                try_candidate(rules, arena, canonical, choices, &now.raised, &now.raised.data[i], GAIN * now.cycles,
                              &best, options);
        if (!best.count) return;
        for (int p = 0; p < best.count; p++) lib_vec_push(arena, &choices->decided, best.pins[p]);
        now = best;
    }
}

/* ---- schedules and kernels */

static void write_schedule(const jit_rules *rules, const tir_machine *machine, lib_arena *arena,
                           const tir_region *canonical, tir_choices *choices, tir_schedule *schedule) {
    tir_schedule_init(schedule, arena);
    schedule->choices = choices;
    choices->made.count = choices->doubts.count = 0;
    rules->by->schedule(machine, rules->threads, tir_region_copy(arena, canonical), schedule);
}

static void schedule_for(const jit_rules *rules, const tir_machine *machine, lib_arena *arena,
                         const tir_region *canonical, tir_choices *given, tir_schedule *schedule,
                         const tir_lower_options *options) {
    tir_choices own = {.arena = arena, .decide = true}, *choices = given ? given : &own;
    choices->decided.count = 0;
    choices->decide = choices->decide && rules->by->cost;
    write_schedule(rules, machine, arena, canonical, choices, schedule);
    if (choices->doubts.count) decide(rules, arena, canonical, choices, options);
    if (choices->decided.count) write_schedule(rules, machine, arena, canonical, choices, schedule);
    schedule->choices = given;
}

void jit_schedule_by_rules(const jit_rules *rules, lib_arena *arena, const tir_region *canonical, tir_choices *choices,
                           tir_schedule *schedule, const tir_lower_options *options) {
    schedule_for(rules, options->machine, arena, canonical, choices, schedule, options);
}

/* Lowers the region by the target's rules for `machine`. NULL and *error if lowering rejects the rules' schedule. */
static tir_kernel *lower_for(const jit_rules *rules, const tir_machine *machine, lib_arena *arena,
                             tir_region *canonical, tir_choices *choices, tir_region **rewritten,
                             tir_schedule *schedule, const tir_lower_options *options, lib_error *error) {
    lib_scope *outer = arena->scope, scope;
    tir_kernel *volatile kernel = NULL;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        schedule_for(rules, machine, arena, canonical, choices, schedule, options);
        *rewritten = tir_region_copy(arena, canonical);
        tir_schedule_rewrite(*rewritten, schedule, NULL); /* the rewrite section determines the input layouts */
        kernel = tir_lower(arena, canonical, schedule, options);
    }
    arena->scope = outer;
    *error = scope.error;
    return kernel;
}

tir_kernel *jit_lower_by_rules(const jit_rules *rules, lib_arena *arena, tir_region *region, tir_choices *choices,
                               tir_region **rewritten, tir_schedule *schedule, const tir_lower_options *given,
                               lib_error *error) {
    enum { LEAST_REGISTERS = 4 };
    tir_machine machine = *given->machine;
    tir_lower_options options = *given;
    tir_region *canonical = tir_region_canonical(arena, region);
    tir_kernel *kernel;
    bool overfull;
    options.overfull = &overfull;
    do {
        overfull = false;
        kernel = lower_for(rules, &machine, arena, canonical, choices, rewritten, schedule, &options, error);
        machine.vector_registers /= 2;
    } while (!kernel && overfull && machine.vector_registers >= LEAST_REGISTERS);
    if (!kernel && lib_is_circumstance(error->status)) lib_raise_error(arena->scope, error);
    return kernel;
}

/* ---- another candidate in place of a schedule that lowering refuses */

/* The change of one choice whose kernel is predicted to be fastest, of those that lowering takes; *found false: it takes none of
 * CHANGES_MOST. All choices get one other candidate before any gets a second one. */
static tir_pin find_change(const jit_rules *rules, lib_arena *arena, const tir_region *canonical, bool *found,
                           const tir_lower_options *options) {
    enum { CHANGES_MOST = 64 };
    const tir_choices none = {.arena = arena};
    tir_choices choices = {.arena = arena, .record = true};
    tir_schedule schedule;
    tir_pin best = {0};
    double least = INFINITY;
    int tried = 0, most = 0;
    write_schedule(rules, options->machine, arena, canonical, &choices, &schedule);
    for (uint32_t i = 0; i < choices.made.count; i++)
        if (choices.made.data[i].count > most) most = choices.made.data[i].count;
    for (int n = 1; n < most; n++)
        for (uint32_t i = 0; i < choices.made.count && tried < CHANGES_MOST; i++) {
            const tir_choice *made = &choices.made.data[i];
            if (n >= made->count) continue;
            const tir_pin change = {made->stage, made->what, made->candidate[(made->taken + n) % made->count]};
            const double cycles = price(rules, arena, canonical, &none, &change, 1, NULL, options);
            tried++;
            if (!(cycles < least)) continue;
            least = cycles;
            best = change;
        }
    *found = least < INFINITY;
    return best;
}

tir_kernel *jit_lower_by_other_choice(const jit_rules *rules, lib_arena *arena, tir_region *region,
                                      tir_region **rewritten, tir_schedule *schedule, const tir_lower_options *options,
                                      const char **change) {
    tir_choices choices = {.arena = arena, .record = true};
    lib_scope *const outer = arena->scope, scope;
    volatile bool found = false;
    lib_error error;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        bool any;
        const tir_pin pin = find_change(rules, arena, tir_region_canonical(arena, region), &any, options);
        lib_vec_push(arena, &choices.pins, pin);
        found = any;
    }
    arena->scope = outer;
    if (lib_is_circumstance(scope.error.status)) lib_raise_error(outer, &scope.error);
    if (!found) return NULL; /* also if the rules themselves fail */
    tir_kernel *kernel = jit_lower_by_rules(rules, arena, region, &choices, rewritten, schedule, options, &error);
    if (!kernel) return NULL;
    tir_choices_show(schedule, region);
    for (uint32_t i = 0; i < choices.made.count; i++) {
        const tir_choice *made = &choices.made.data[i];
        if (made->pinned)
            *change = lib_arena_format(arena, "%s.%s %s", made->shown_stage, made->what, made->shown[made->taken]);
    }
    return kernel;
}
