/* Choices: the named decisions of schedule rules. For each decision among candidates a rule calls tir_choose_*, with its own answer, and
 * continues with the result. If the schedule has no `choices`, that is the rule's answer. Otherwise the decision is recorded with its
 * candidates, and a decision that is pinned gets the pinned answer: a host's section of lines
 *
 *   choose dot_general.rows 8
 *
 * means "the rules, but for these". A stage and a word identify a decision. Rules may ask again after they have changed the region; then the
 * first candidates and the last answer are recorded. */
#ifndef TIR_CHOICE_H
#define TIR_CHOICE_H

#include "tir/schedule.h"

typedef struct tir_choice {
    const char *stage, *what;
    /* as a pin names them; neighbours are similar */
    const char **candidate;
    int count;
    /* number of the candidate that was taken */
    int taken;
    /* there is a pin for it */
    bool pinned;
    /* length of the schedule's text when the decision was first made */
    size_t at;
    /* set by tir_choices_show: stage, what and candidates with the names of the region that people read */
    const char *shown_stage, **shown;
} tir_choice;

typedef struct tir_pin {
    const char *stage, *what, *value;
} tir_pin;

struct tir_choices {
    lib_arena *arena;
    lib_vec(tir_pin) pins;
    lib_vec(tir_choice) made;
};

/* The numbers low, low + step, ... up to high. */
typedef struct tir_numbers {
    int64_t low, high, step;
} tir_numbers;

/* Each returns by_rule if the schedule has no choices, or if the pinned value is no candidate. by_rule must be one of the candidates. */
int64_t tir_choose_number(tir_schedule *schedule, const char *stage, const char *what, tir_numbers from,
                          int64_t by_rule);
int tir_choose_word(tir_schedule *schedule, const char *stage, const char *what, int count, const char *const *words,
                    int by_rule);
bool tir_choose_yes(tir_schedule *schedule, const char *stage, const char *what, bool by_rule);

/* For a search that makes several choices together: _is_pinned_ and _pinned_number_ say which candidates it may consider; _record_ notes
 * what it chose. If no candidate meets all pins, the search ignores them, and whoever gave them is told. */
bool tir_is_pinned(const tir_schedule *schedule, const char *stage, const char *what, const char *word);
int64_t tir_pinned_number(const tir_schedule *schedule, const char *stage, const char *what); /* 0: not pinned */
void tir_record_number(tir_schedule *schedule, const char *stage, const char *what, tir_numbers from, int64_t taken);
void tir_record_word(tir_schedule *schedule, const char *stage, const char *what, int count, const char *const *words,
                     int taken);

/* Sets shown_stage and shown of the schedule's choices: rules wrote it for tir_region_canonical(region). */
void tir_choices_show(const tir_schedule *schedule, const tir_region *region);

#endif
