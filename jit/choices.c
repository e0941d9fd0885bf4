/* Choices of the target's rules (tir/choice.h): pinned by a host's section of `choose` lines, and listed with predicted cycles (dump
 * "choices"). Rules see canonical names, hosts the region's own, in which the choices of a recorded run are shown; a pin is translated by
 * finding the choice that is shown as the host wrote it. */
#include "jit/internal.h"

#include "tir/choice.h"

/* ---- a host's text */

/* A line `choose STAGE.WHAT VALUE`, with the region's names. */
typedef struct wanted {
    const char *line;
    const char *stage, *what, *value;
    int number;
    bool found;
} wanted;
typedef lib_vec(wanted) wanted_list;

static _Noreturn void refuse(lib_arena *arena, const tir_region *region, const wanted *which, const char *reason) {
    lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "schedule of region %s, line %d: `%s`: %s", region->name,
              which->number, which->line, reason);
}

/* The next word at *at, up to a character of `end` or the end of the line; "": none. */
static const char *take_word(lib_arena *arena, const char **at, const char *end) {
    *at += strspn(*at, " \t");
    const size_t length = strcspn(*at, end);
    const char *word = lib_arena_format(arena, "%.*s", (int)length, *at);
    *at += length;
    return word;
}

/* The lines that choose. Raises if the text has both choices and directives. */
static wanted_list parse_choices(lib_arena *arena, const tir_region *region, const jit_own *own) {
    wanted_list list = {0};
    const char *text = lib_arena_format(arena, "%.*s", (int)own->length, own->text);
    int number = own->line, directive = 0;
    for (const char *line = text; *line; number++) {
        const char *at = line;
        const size_t length = strcspn(line, "\n");
        const char *first = take_word(arena, &at, " \t\r\n");
        if (strcmp(first, "choose") == 0) {
            const char *stage = take_word(arena, &at, ". \t\r\n");
            at += *at == '.';
            const char *what = take_word(arena, &at, " \t\r\n"), *value = take_word(arena, &at, " \t\r\n");
            const wanted one = {lib_arena_format(arena, "%.*s", (int)length, line), stage, what, value, number, false};
            if (!*value || *take_word(arena, &at, " \t\r\n"))
                refuse(arena, region, &one, "expected `choose STAGE.CHOICE VALUE`");
            lib_vec_push(arena, &list, one);
        } else if (*first && *first != '#') {
            directive = number;
        }
        line += length + (line[length] != 0);
    }
    if (list.count && directive)
        refuse(arena, region, &list.data[0],
               lib_arena_format(arena,
                                "a section has either choices, which the rules take over, or directives (line %d)",
                                directive));
    return list;
}

/* ---- pins */

static void list_words(lib_text *text, const char *const *words, int count) {
    enum { SHOWN = 16 };
    for (int i = 0; i < count && i < SHOWN; i++) lib_text_format(text, "%s%s", i ? ", " : "", words[i]);
    if (count > SHOWN) lib_text_format(text, ", ... %s", words[count - 1]);
}

/* The candidate that is shown as `value`; of a number that is not among the sample that is listed, the number. NULL: there is none. */
static const char *candidate_of(lib_arena *arena, const tir_choice *choice, const char *value) {
    for (int i = 0; i < choice->count; i++)
        if (strcmp(choice->shown[i], value) == 0) return choice->candidate[i];
    const tir_numbers *from = &choice->numbers;
    char *end;
    const long long number = strtoll(value, &end, 10);
    if (*end || !from->step || number < from->low || number > from->high || (number - from->low) % from->step)
        return NULL;
    return lib_arena_format(arena, "%lld", number);
}

/* The choice that is shown as `which` says; NULL: there is none. */
static tir_choice *find_choice(const tir_choices *choices, const wanted *which) {
    for (uint32_t i = 0; i < choices->made.count; i++) {
        tir_choice *made = &choices->made.data[i];
        if (strcmp(made->shown_stage, which->stage) == 0 && strcmp(made->what, which->what) == 0) return made;
    }
    return NULL;
}

/* Pins the wanted choice if the value is a candidate beside what is pinned so far. */
static bool pin(tir_choices *choices, wanted *which) {
    tir_choice *made = find_choice(choices, which);
    const char *value = made ? candidate_of(choices->arena, made, which->value) : NULL;
    if (!value) return false;
    if (made->pinned) return which->found = true; /* by an earlier line; check_pins tells if that one differs */
    lib_vec_push(choices->arena, &choices->pins, ((tir_pin){made->stage, made->what, value}));
    return which->found = made->pinned = true;
}

static _Noreturn void refuse_unknown(const tir_choices *choices, const tir_region *region, const wanted *which) {
    lib_text reason;
    lib_text_init(&reason, choices->arena);
    lib_nearest nearest = lib_nearest_to(lib_arena_format(choices->arena, "%s.%s", which->stage, which->what));
    lib_text_add(&reason,
                 choices->made.count ? "there is no such choice; there are" : "the rules have no choices here");
    for (uint32_t i = 0; i < choices->made.count; i++) {
        const tir_choice *made = &choices->made.data[i];
        const char *name = lib_arena_format(choices->arena, "%s.%s", made->shown_stage, made->what);
        lib_text_format(&reason, "%s %s", i ? "," : "", name);
        lib_nearest_try(&nearest, name, strlen(name));
    }
    lib_text_add(&reason, lib_nearest_hint(&nearest));
    refuse(choices->arena, region, which, reason.data);
}

/* Raises unless each choice is as the host wants it. */
static void check_pins(const tir_choices *choices, const tir_region *region, const wanted_list *list) {
    for (uint32_t w = 0; w < list->count; w++) {
        const wanted *which = &list->data[w];
        const tir_choice *made = find_choice(choices, which);
        if (!made) refuse_unknown(choices, region, which);
        if (which->found && strcmp(made->shown[made->taken], which->value) == 0) continue;
        lib_text reason;
        lib_text_init(&reason, choices->arena);
        lib_text_add(&reason,
                     which->found ? "impossible beside the other choices; expected one of " : "expected one of ");
        list_words(&reason, made->shown, made->count);
        refuse(choices->arena, region, which, reason.data);
    }
}

bool jit_has_choices(const jit_own *own) {
    static const char word[] = "choose";
    const size_t length = sizeof word - 1;
    for (size_t at = 0; own->text && at < own->length;) {
        while (at < own->length && strchr(" \t", own->text[at])) at++;
        if (own->length - at >= length && memcmp(own->text + at, word, length) == 0 &&
            (own->length - at == length || strchr(" \t\r\n", own->text[at + length])))
            return true;
        const char *end = memchr(own->text + at, '\n', own->length - at);
        if (!end) break;
        at = (size_t)(end - own->text) + 1;
    }
    return false;
}

tir_kernel *jit_lower_by_choices(const jit_rules *rules, lib_arena *arena, tir_region *region, const jit_own *own,
                                 tir_region **rewritten, tir_schedule *schedule, const tir_lower_options *options) {
    const wanted_list list = parse_choices(arena, region, own);
    tir_choices choices = {.arena = arena, .record = true, .decide = true};
    tir_kernel *kernel;
    lib_error error;
    /* a choice or a candidate may exist only after another choice has been pinned */
    for (bool more = true; more;) {
        kernel = jit_lower_by_rules(rules, arena, region, &choices, rewritten, schedule, options, &error);
        tir_choices_show(schedule, region);
        more = false;
        for (uint32_t w = 0; w < list.count; w++)
            if (!list.data[w].found) more |= pin(&choices, &list.data[w]);
    }
    check_pins(&choices, region, &list);
    if (!kernel) lib_raise_error(arena->scope, &error);
    return kernel;
}

/* ---- at random, for tests */

uint64_t jit_choices_seed(void) {
    return (uint64_t)lib_environment_integer(LIB_ENV_CHOICES, 0);
}

tir_kernel *jit_lower_at_random(const jit_rules *rules, lib_arena *arena, tir_region *region, tir_region **rewritten,
                                tir_schedule *schedule, const tir_lower_options *options) {
    tir_choices choices = {.arena = arena, .record = true, .decide = true};
    lib_error error;
    uint64_t random = lib_hash_mix(jit_choices_seed(), tir_region_hash(region).low);
    if (!jit_lower_by_rules(rules, arena, region, &choices, rewritten, schedule, options, &error)) return NULL;
    for (uint32_t i = 0; i < choices.made.count; i++) {
        const tir_choice *made = &choices.made.data[i];
        random = lib_hash_mix(random, i + 1);
        if (random % 4) continue;
        const char *value = made->candidate[(random >> 8) % (uint64_t)made->count];
        lib_vec_push(arena, &choices.pins, ((tir_pin){made->stage, made->what, value}));
    }
    return jit_lower_by_rules(rules, arena, region, &choices, rewritten, schedule, options, &error);
}

/* ---- all choices of a region, as text */

/* A prediction. bound: the level whose cycles are most (target_cost.level_cycles). */
typedef struct prediction {
    double cycles;
    int bound;
} prediction;

static const char *const level_names[TIR_LEVELS] = {"instructions", "L2", "L3", "memory"};

static prediction prediction_of(const target_cost *cost) {
    prediction p = {.cycles = cost->cycles};
    for (int i = 1; i < TIR_LEVELS; i++)
        if (cost->level_cycles[i] > cost->level_cycles[p.bound]) p.bound = i;
    return p;
}

/* The prediction with this choice changed; cycles below 0: lowering refuses the schedule. */
static prediction predict_changed(const jit_rules *rules, lib_arena *arena, tir_region *region, const tir_pin *changed,
                                  const tir_lower_options *options, jit_predict *predict, void *user) {
    /* there are hundreds of trials; expressions stay in the region's pool */
    lib_arena trial, *nodes = region->pool->arena;
    lib_scope scope, *const outer = nodes->scope;
    prediction *predicted = LIB_NEW(arena, prediction);
    predicted->cycles = -1;
    lib_arena_init(&trial, arena->allocator, &scope);
    nodes->scope = &scope;
    if (LIB_ENTER(&scope)) {
        tir_choices choices = {.arena = &trial, .record = true, .decide = true};
        tir_schedule schedule;
        tir_region *rewritten;
        lib_error error;
        lib_vec_push(&trial, &choices.pins, *changed);
        const tir_kernel *kernel =
            jit_lower_by_rules(rules, &trial, region, &choices, &rewritten, &schedule, options, &error);
        if (kernel) {
            const target_cost cost = predict(user, &trial, kernel);
            *predicted = prediction_of(&cost);
        }
    }
    nodes->scope = outer;
    lib_arena_free(&trial);
    if (scope.error.status != DLC_OK) lib_raise_error(arena->scope, &scope.error);
    return *predicted;
}

/* What the rules' kernel is predicted to take, level by level. */
static void print_cost(lib_text *text, const target_cost *cost) {
    lib_text_format(text, "# %.0f cycles predicted", cost->cycles);
    for (int i = 0; i < TIR_LEVELS && cost->level_cycles[0] > 0; i++)
        lib_text_format(text, "%s %.0f %s %s", i ? "," : ":", cost->level_cycles[i], i ? "from" : "of", level_names[i]);
    lib_text_add(text, "\n");
}

void jit_print_choices(lib_text *text, const jit_rules *rules, lib_arena *arena, tir_region *region,
                       const tir_lower_options *options, jit_predict *predict, void *user) {
    tir_choices choices = {.arena = arena, .record = true, .decide = true};
    tir_schedule schedule;
    tir_region *rewritten;
    lib_error error;
    const tir_kernel *kernel =
        jit_lower_by_rules(rules, arena, region, &choices, &rewritten, &schedule, options, &error);
    const target_cost cost = kernel ? predict(user, arena, kernel) : (target_cost){0};
    const prediction by_rules = prediction_of(&cost);
    tir_choices_show(&schedule, region);
    lib_text_format(text, "%sregion %s #%016llx:%s\n", choices.made.count ? "" : "# ", region->name,
                    (unsigned long long)tir_region_hash(region).low, choices.made.count ? "" : " no choices");
    if (by_rules.cycles > 0) print_cost(text, &cost);
    for (uint32_t i = 0; i < choices.made.count; i++) {
        const tir_choice *made = &choices.made.data[i];
        lib_text_format(text, "choose %s.%s %s\n", made->shown_stage, made->what, made->shown[made->taken]);
        bool first = true;
        for (int v = 0; v < made->count; v++) {
            const tir_pin changed = {made->stage, made->what, made->candidate[v]};
            if (v == made->taken) continue;
            const prediction here = predict_changed(rules, arena, region, &changed, options, predict, user);
            lib_text_format(text, "%s %s", first ? "#  " : ",", made->shown[v]);
            if (here.cycles < 0) lib_text_add(text, " refused");
            if (here.cycles > 0 && by_rules.cycles > 0) lib_text_format(text, " %.2f", here.cycles / by_rules.cycles);
            if (here.cycles > 0 && here.bound != by_rules.bound) lib_text_format(text, " %s", level_names[here.bound]);
            first = false;
        }
        if (!first) lib_text_add(text, "\n");
    }
}
