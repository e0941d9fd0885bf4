/* golden/cpu/x.txt: a region, and the schedules that the rules of the cpu target write for it on each of the machines of machines.c, merged:
 * a line of all of them stands once, with nothing before it; before any other line stand the letters of the machines that have it. One
 * machine's schedule is the lines with its letter or without letters, in this order. Each schedule is lowered, too: what lowering refuses is
 * a line `error: MESSAGE`. */
#ifdef DLC_TARGET_cpu
#include "golden/files.h"
#include "golden/machines.h"
#include "test/region.h"

#include "targets/cpu/cost.h"
#include "tir/loop.h"
#include "tir/schedule.h"
#include "tir/vectorise.h"

enum { ALL = (1 << GOLDEN_MACHINES) - 1, LINES = 4096 };

typedef struct line {
    const char *text;
    /* bits of golden_machines */
    unsigned machines;
} line;

typedef struct lines {
    line *data;
    int count;
} lines;

/* The schedule's lines, and the error of lowering, if any. */
static const char *schedule_text(lib_arena *arena, const char *input, const golden_machine *machine) {
    lib_scope scope, *outer = arena->scope;
    tir_region *region = region_of_text(arena, input);
    tir_schedule schedule;
    tir_schedule_init(&schedule, arena);
    tir_machine facts = machine->facts;
    cpu_set_rates(&facts);
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        target_cpu.schedule(&facts, machine->threads, tir_region_copy(arena, region), &schedule);
        const tir_kernel *kernel =
            tir_lower(arena, region, &schedule, &(tir_lower_options){.machine = &facts, .verify = true});
        tir_kernel_verify(arena->scope, tir_vectorise(arena, kernel, &facts), NULL, NULL);
    }
    arena->scope = outer;
    if (scope.error.status != DLC_OK) lib_text_format(&schedule.text, "error: %s\n", scope.error.message);
    return schedule.text.length ? schedule.text.data : "(plain loops)\n";
}

static lines split_lines(lib_arena *arena, const char *text) {
    lines found = {LIB_NEW_ARRAY(arena, line, LINES), 0};
    for (; *text; text += text[strcspn(text, "\n")] == '\n' ? strcspn(text, "\n") + 1 : strlen(text)) {
        if (found.count == LINES) lib_raise(arena->scope, DLC_UNSUPPORTED, "a schedule of more than %d lines", LINES);
        found.data[found.count++].text = lib_arena_format(arena, "%.*s", (int)strcspn(text, "\n"), text);
    }
    return found;
}

/* `more`, of machine `bit`, into `all`: lines of a longest common subsequence get the bit, others are put in between. */
static lines merge(lib_arena *arena, const lines *all, const lines *more, unsigned bit) {
    const int n = all->count, m = more->count;
    int *common = LIB_NEW_ARRAY(arena, int, (size_t)(n + 1) * (size_t)(m + 1)); /* [i][j]: of all[i..] and more[j..] */
    lines merged = {LIB_NEW_ARRAY(arena, line, (size_t)(n + m + 1)), 0};
#define COMMON(i, j) common[(size_t)(i) * (size_t)(m + 1) + (size_t)(j)]
    for (int i = n - 1; i >= 0; i--)
        for (int j = m - 1; j >= 0; j--)
            COMMON(i, j) = strcmp(all->data[i].text, more->data[j].text) == 0 ? COMMON(i + 1, j + 1) + 1
                           : COMMON(i + 1, j) >= COMMON(i, j + 1)             ? COMMON(i + 1, j)
                                                                              : COMMON(i, j + 1);
    for (int i = 0, j = 0; i < n || j < m;) {
        const bool both = i < n && j < m && strcmp(all->data[i].text, more->data[j].text) == 0;
        const bool first = i < n && (both || j == m || COMMON(i + 1, j) >= COMMON(i, j + 1));
        line *to = &merged.data[merged.count++];
        *to = first ? all->data[i] : (line){more->data[j].text, 0};
        if (!first || both) to->machines |= bit;
        i += first;
        j += !first || both;
    }
#undef COMMON
    return merged;
}

static void print_lines(lib_text *out, const lines *all) {
    for (int i = 0; i < all->count; i++) {
        char who[GOLDEN_MACHINES + 1] = "";
        for (int m = 0; m < GOLDEN_MACHINES; m++) {
            const bool has = all->data[i].machines != ALL && all->data[i].machines >> m & 1;
            who[m] = has ? golden_machines[m].letter : ' ';
        }
        lib_text_format(out, "%s %s\n", who, all->data[i].text);
    }
}

static void schedules(lib_arena *arena, lib_text *out, const char *input) {
    lines all = {0};
    for (int m = 0; m < GOLDEN_MACHINES; m++) {
        const lines here = split_lines(arena, schedule_text(arena, input, &golden_machines[m]));
        all = merge(arena, &all, &here, 1u << m);
    }
    print_lines(out, &all);
}

int main(void) {
    return golden_run("golden/cpu", "test/golden/cpu", "==== schedule\n", schedules);
}
#else
int main(void) {
    return 77;
}
#endif
