#include "bench/choice_list.h"

#include <stdio.h>
#include <string.h>

/* A line `  A 1.02, B 0.98 L2, C refused`. */
static void read_candidates(bench_choice *choice, const char *line) {
    for (const char *at = line; *at && choice->count < BENCH_CANDIDATES; at += strcspn(at, ","), at += *at == ',')
        if (sscanf(at, " %31[^ ,] %lf", choice->value[choice->count], &choice->predicted[choice->count]) == 2)
            choice->count++;
}

int bench_choices_read(const char *dump, bench_choice list[BENCH_CHOICES]) {
    char line[4096], region[160] = "";
    int count = 0;
    for (const char *at = dump; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        if (strncmp(line, "region ", 7) == 0) snprintf(region, sizeof region, "%.159s", line);
        if (strncmp(line, "#  ", 3) == 0 && count) read_candidates(&list[count - 1], line + 2);
        if (count == BENCH_CHOICES) break;
        bench_choice *next = &list[count];
        *next = (bench_choice){.count = 0};
        memcpy(next->region, region, sizeof region);
        if (sscanf(line, "choose %119s %31s", next->name, next->taken) == 2) count++;
    }
    return count;
}

void bench_schedule_draw(const bench_choice *list, int count, int part, bench_draw *random, char *text, size_t size) {
    const char *region = "";
    int with_candidates = 0;
    size_t length = 0;
    for (int i = 0; i < count; i++) with_candidates += list[i].count > 0;
    int always = with_candidates ? (int)bench_draw_below(random, with_candidates) : -1;
    for (int i = 0; i < count; i++) {
        const bench_choice *c = &list[i];
        if (c->count == 0 || (always-- != 0 && bench_draw_below(random, part))) continue;
        const char *value = c->value[bench_draw_below(random, c->count)];
        char lines[512];
        int more = snprintf(lines, sizeof lines, "%s%schoose %s %s\n", strcmp(region, c->region) ? c->region : "",
                            strcmp(region, c->region) ? "\n" : "", c->name, value);
        if (length + (size_t)more + 1 > size) break;
        memcpy(text + length, lines, (size_t)more);
        length += (size_t)more;
        region = c->region;
    }
    text[length] = 0;
}
