/* The choices of a program's schedule rules with their candidates, read from its dump "choices", and schedules that make other ones. */
#ifndef BENCH_CHOICE_LIST_H
#define BENCH_CHOICE_LIST_H

#include "bench/draw.h"

#include <stddef.h>

enum { BENCH_CHOICES = 256, BENCH_CANDIDATES = 64 };

typedef struct bench_choice {
    /* the header of its section, `region NAME #HASH:` */
    char region[160];
    /* STAGE.CHOICE, and the candidate that the rules take */
    char name[120], taken[32];
    /* the other candidates, except those that lowering refuses, and their predicted times over that of the rules' own */
    int count;
    char value[BENCH_CANDIDATES][32];
    double predicted[BENCH_CANDIDATES];
} bench_choice;

/* Returns the number of choices in `list`; those beyond BENCH_CHOICES are left out. */
int bench_choices_read(const char *dump, bench_choice list[BENCH_CHOICES]);
/* Writes a schedule in which about one choice of `part` has another candidate, drawn at random; at least one has. */
void bench_schedule_draw(const bench_choice *list, int count, int part, bench_draw *random, char *text, size_t size);

#endif
