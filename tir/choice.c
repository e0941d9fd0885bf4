#include "tir/choice.h"

#include <stdlib.h>

/* Of more than MOST candidates an even sample of MOST is recorded, the pinned one, and those at most NEAR steps from the rule's answer. */
enum { MOST = 48, NEAR = 4, RECORDED = MOST + 2 * NEAR + 3 };

/* The last one for the choice; NULL: there is none. */
static const tir_pin *find_pin(const tir_pins *pins, const char *stage, const char *what) {
    for (uint32_t i = pins->count; i > 0; i--) {
        const tir_pin *pin = &pins->data[i - 1];
        if (strcmp(pin->stage, stage) == 0 && strcmp(pin->what, what) == 0) return pin;
    }
    return NULL;
}

/* The value that a pin or, without one, a decision of the cost model gives the choice; NULL: there is neither. */
static const char *pinned_value(const tir_schedule *schedule, const char *stage, const char *what) {
    const tir_choices *choices = schedule->choices;
    if (!choices) return NULL;
    const tir_pin *pin = find_pin(&choices->pins, stage, what);
    if (!pin) pin = find_pin(&choices->decided, stage, what);
    return pin ? pin->value : NULL;
}

bool tir_is_asked(const tir_schedule *schedule, const char *stage, const char *what) {
    return (schedule->choices && schedule->choices->record) || pinned_value(schedule, stage, what);
}

void tir_doubt(tir_schedule *schedule, const char *stage, const char *what, const char *word) {
    tir_choices *choices = schedule->choices;
    if (!choices || !choices->decide || pinned_value(schedule, stage, what)) return;
    for (uint32_t i = 0; i < choices->doubts.count; i++) {
        const tir_pin *doubt = &choices->doubts.data[i];
        if (strcmp(doubt->stage, stage) == 0 && strcmp(doubt->what, what) == 0 && strcmp(doubt->value, word) == 0)
            return;
    }
    const tir_pin doubt = {lib_arena_string(choices->arena, stage), what, lib_arena_string(choices->arena, word)};
    lib_vec_push(choices->arena, &choices->doubts, doubt);
}

bool tir_has_pins(const tir_schedule *schedule) {
    return schedule->choices && (schedule->choices->pins.count || schedule->choices->decided.count);
}

bool tir_is_pinned(const tir_schedule *schedule, const char *stage, const char *what, const char *word) {
    const char *value = pinned_value(schedule, stage, what);
    return value && strcmp(value, word) == 0;
}

int64_t tir_pinned_number(const tir_schedule *schedule, const char *stage, const char *what) {
    const char *value = pinned_value(schedule, stage, what);
    return value ? strtoll(value, NULL, 10) : 0;
}

static int number_of(int count, const char *const *candidate, const char *value) {
    for (int i = 0; i < count && value; i++)
        if (strcmp(candidate[i], value) == 0) return i;
    return -1;
}

static void record(tir_schedule *schedule, const char *stage, const char *what, int count, const char *const *words,
                   int taken, tir_numbers numbers) {
    tir_choices *choices = schedule->choices;
    if (!choices || !choices->record) return;
    for (uint32_t i = 0; i < choices->made.count; i++) {
        tir_choice *made = &choices->made.data[i];
        if (strcmp(made->stage, stage) != 0 || strcmp(made->what, what) != 0) continue;
        made->taken = number_of(made->count, made->candidate, words[taken]);
        if (made->taken >= 0) return;
        const char **more = LIB_NEW_ARRAY(choices->arena, const char *, (size_t)made->count + 1);
        memcpy(more, made->candidate, (size_t)made->count * sizeof *more);
        more[made->taken = made->count++] = lib_arena_string(choices->arena, words[taken]);
        made->candidate = more;
        return;
    }
    tir_choice made = {.stage = lib_arena_string(choices->arena, stage),
                       .what = what,
                       .candidate = LIB_NEW_ARRAY(choices->arena, const char *, (size_t)count + 1),
                       .count = count,
                       .numbers = numbers,
                       .taken = taken,
                       .pinned = find_pin(&choices->pins, stage, what) != NULL,
                       .at = schedule->text.length};
    for (int i = 0; i < count; i++) made.candidate[i] = lib_arena_string(choices->arena, words[i]);
    lib_vec_push(choices->arena, &choices->made, made);
}

void tir_record_word(tir_schedule *schedule, const char *stage, const char *what, int count, const char *const *words,
                     int taken) {
    record(schedule, stage, what, count, words, taken, (tir_numbers){0});
}

int tir_choose_word(tir_schedule *schedule, const char *stage, const char *what, int count, const char *const *words,
                    int by_rule) {
    if (!schedule->choices) return by_rule;
    const int pinned = number_of(count, words, pinned_value(schedule, stage, what));
    const int taken = pinned >= 0 ? pinned : by_rule;
    tir_record_word(schedule, stage, what, count, words, taken);
    return taken;
}

/* ---- searches */

tir_search tir_search_for(tir_schedule *schedule, const char *stage, int count, const char *const *what) {
    tir_search search = {.schedule = schedule, .stage = stage, .count = count};
    for (int i = 0; i < count; i++) {
        search.of[i].what = what[i];
        search.asked = search.asked || tir_is_asked(schedule, stage, what[i]);
    }
    return search;
}

bool tir_search_admits(tir_search *search, const char *const *words) {
    bool admitted = true;
    for (int i = 0; i < search->count; i++) {
        tir_searched *of = &search->of[i];
        const char *pinned = pinned_value(search->schedule, search->stage, of->what);
        if (pinned && strcmp(pinned, words[i]) != 0) admitted = false;
        if (of->words < TIR_WORDS && number_of(of->words, of->word, words[i]) < 0)
            of->word[of->words++] = lib_arena_string(search->schedule->arena, words[i]);
    }
    return admitted || search->unpinned;
}

void tir_search_record(tir_search *search, const char *const *words) {
    for (int i = 0; i < search->count; i++) {
        const tir_searched *of = &search->of[i];
        const int taken = number_of(of->words, of->word, words[i]);
        if (taken >= 0) tir_record_word(search->schedule, search->stage, of->what, of->words, of->word, taken);
    }
}

/* ---- words and numbers */

bool tir_choose_yes(tir_schedule *schedule, const char *stage, const char *what, bool by_rule) {
    static const char *const words[] = {"no", "yes"};
    return tir_choose_word(schedule, stage, what, 2, words, by_rule) == 1;
}

/* Candidates of a number, as words. */
typedef struct number_list {
    int count, rule;
    int64_t number[RECORDED];
    const char *word[RECORDED];
} number_list;

static void add_number(number_list *list, lib_arena *arena, int64_t number) {
    list->number[list->count] = number;
    list->word[list->count++] = lib_arena_format(arena, "%lld", (long long)number);
}

static void list_numbers(number_list *list, const tir_schedule *schedule, tir_numbers from, int64_t by_rule,
                         int64_t pinned) {
    lib_arena *arena = schedule->choices->arena;
    const int64_t all = from.high < from.low ? 0 : (from.high - from.low) / from.step + 1;
    const int64_t apart = all > MOST ? (all + MOST - 1) / MOST : 1;
    list->count = 0;
    list->rule = -1;
    for (int64_t i = 0; i < all; i++) {
        const int64_t number = from.low + i * from.step;
        const int64_t distance = number < by_rule ? by_rule - number : number - by_rule;
        if (i % apart && distance > NEAR * from.step && number != pinned) continue;
        if (number == by_rule) list->rule = list->count;
        add_number(list, arena, number);
    }
    if (list->rule >= 0) return;
    list->rule = list->count; /* the rule's answer is always one */
    add_number(list, arena, by_rule);
}

void tir_record_number(tir_schedule *schedule, const char *stage, const char *what, tir_numbers from, int64_t taken) {
    number_list list;
    if (!schedule->choices || !schedule->choices->record) return;
    list_numbers(&list, schedule, from, taken, tir_pinned_number(schedule, stage, what));
    record(schedule, stage, what, list.count, list.word, list.rule, from);
}

int64_t tir_choose_power(tir_schedule *schedule, const char *stage, const char *what, int64_t low, int64_t high,
                         int64_t by_rule) {
    number_list list = {.rule = -1};
    if (!tir_is_asked(schedule, stage, what)) return by_rule;
    for (int64_t power = low; power <= high && list.count + 1 < RECORDED; power *= 2) {
        if (power == by_rule) list.rule = list.count;
        add_number(&list, schedule->choices->arena, power);
    }
    if (list.rule < 0) {
        list.rule = list.count;
        add_number(&list, schedule->choices->arena, by_rule);
    }
    return list.number[tir_choose_word(schedule, stage, what, list.count, list.word, list.rule)];
}

int64_t tir_choose_number(tir_schedule *schedule, const char *stage, const char *what, tir_numbers from,
                          int64_t by_rule) {
    number_list list;
    if (!tir_is_asked(schedule, stage, what)) return by_rule;
    list_numbers(&list, schedule, from, by_rule, tir_pinned_number(schedule, stage, what));
    const int pinned = number_of(list.count, list.word, pinned_value(schedule, stage, what));
    const int taken = pinned >= 0 ? pinned : list.rule;
    record(schedule, stage, what, list.count, list.word, taken, from);
    return list.number[taken];
}
