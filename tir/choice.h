/* Choices: the named decisions of schedule rules. For each decision among candidates a rule calls tir_choose_*, with its own answer, and
 * continues with the result. If the schedule has no `choices`, that is the rule's answer. Otherwise the decision is recorded with its
 * candidates, and a decision that is pinned gets the pinned answer: a host's section of lines
 *
 *   choose dot_general.rows 8
 *
 * means "the rules, but for these". A stage and a word identify a decision. Rules may ask again after they have changed the region; then the
 * candidates of all times and the last answer are recorded.
 *
 * Where a rule's own model does not know a cost, the rule doubts its answer (tir_doubt) and names the candidate that may be better.
 * jit/rules.c, which runs the rules, then lowers and prices the kernels of both, and runs the rules again with its decision. */
#ifndef TIR_CHOICE_H
#define TIR_CHOICE_H

#include "tir/schedule.h"

/* The numbers low, low + step, ... up to high. */
typedef struct tir_numbers {
    int64_t low, high, step;
} tir_numbers;

typedef struct tir_choice {
    const char *stage, *what;
    /* as a pin names them; neighbours are similar */
    const char **candidate;
    int count;
    /* of a number: all candidates, of which `candidate` may be a sample; else step is 0 */
    tir_numbers numbers;
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

typedef lib_vec(tir_pin) tir_pins;

struct tir_choices {
    lib_arena *arena;
    /* `made` and `doubts` are wanted */
    bool record, decide;
    tir_pins pins;
    lib_vec(tir_choice) made;
    /* candidates that may be better than the rules' answers, and those that the cost model found to be better: these hold where no pin
     * does, the last one for a choice before earlier ones */
    tir_pins doubts, decided;
};

/* Is the decision recorded, or has it a pin or a decision of the cost model? If not, it is the rule's answer: no candidates are needed. */
bool tir_is_asked(const tir_schedule *schedule, const char *stage, const char *what);

/* Each returns by_rule if the schedule has no choices, or if the pinned value is no candidate. by_rule must be one of the candidates. */
int64_t tir_choose_number(tir_schedule *schedule, const char *stage, const char *what, tir_numbers from,
                          int64_t by_rule);
int tir_choose_word(tir_schedule *schedule, const char *stage, const char *what, int count, const char *const *words,
                    int by_rule);
bool tir_choose_yes(tir_schedule *schedule, const char *stage, const char *what, bool by_rule);
/* Among low, 2 * low, 4 * low, ... up to high. */
int64_t tir_choose_power(tir_schedule *schedule, const char *stage, const char *what, int64_t low, int64_t high,
                         int64_t by_rule);

/* For a search that makes several choices together: _is_pinned_ and _pinned_number_ say which candidates it may consider; _record_ notes
 * what it chose. If no candidate meets all pins, the search ignores them, and whoever gave them is told. */
bool tir_is_pinned(const tir_schedule *schedule, const char *stage, const char *what, const char *word);
int64_t tir_pinned_number(const tir_schedule *schedule, const char *stage, const char *what); /* 0: not pinned */
void tir_record_number(tir_schedule *schedule, const char *stage, const char *what, tir_numbers from, int64_t taken);
void tir_record_word(tir_schedule *schedule, const char *stage, const char *what, int count, const char *const *words,
                     int taken);

/* The same for a search whose choices have no list of candidates: it presents each combination that is possible, as a word for each choice.
 * If none of those that it may take is found, it is repeated with `unpinned` set. Candidates beyond the room are left out. */
enum { TIR_WORDS = 64, TIR_SEARCHED = 3 };
typedef struct tir_searched {
    const char *what;
    /* those presented so far, each once */
    int words;
    const char *word[TIR_WORDS];
} tir_searched;
typedef struct tir_search {
    tir_schedule *schedule;
    const char *stage;
    int count;
    /* as tir_is_asked of one of the choices; if not, nothing need be presented */
    bool asked;
    /* pins are ignored */
    bool unpinned;
    tir_searched of[TIR_SEARCHED];
} tir_search;
tir_search tir_search_for(tir_schedule *schedule, const char *stage, int count, const char *const *what);
bool tir_search_admits(tir_search *search, const char *const *words); /* presents; may the search take this one? */
void tir_search_record(tir_search *search, const char *const *words); /* notes that it took this one */

/* The candidate `word` may be better than the rule's answer, in a way that the rule's model does not know. */
void tir_doubt(tir_schedule *schedule, const char *stage, const char *what, const char *word);

/* Are there pins, or decisions? */
bool tir_has_pins(const tir_schedule *schedule);

/* Sets shown_stage and shown of the schedule's choices: rules wrote it for tir_region_canonical(region). */
void tir_choices_show(const tir_schedule *schedule, const tir_region *region);

#endif
