/* The choices of the cuda target's rules, for the regions of golden/cuda/x.txt: each with other candidates, alone and at random with
 * others. The kernel is interpreted with all checks and compared with evaluation by definition. Lowering may refuse some. */
#ifdef DLC_TARGET_cuda
#include "test/random.h"
#include "test/region.h"
#include "test/share.h"

#include "targets/cuda/cuda.h"
#include "tir/choice.h"
#include "tir/scheduled.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

#define FOLDER "test/golden/cuda"
enum { CANDIDATES = 1 /* of each choice */, TOGETHER = 2 /* schedules with several changed */ };

static int choices, tried, refused, changed;

/* The region of a golden file. */
static char *region_text(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s cannot be read", path);
    char *text = calloc(1, 1 << 20);
    const size_t size = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    text[size] = 0;
    char *head = text, *end = strstr(text, "==== ");
    if (end) *end = 0;
    while (*head == ';') head += strcspn(head, "\n") + 1; /* words for people */
    memmove(text, head, strlen(head) + 1);
    return text;
}

static const char *schedule_with(lib_arena *arena, const tir_machine *machine, const tir_region *region,
                                 tir_choices *with) {
    tir_schedule schedule;
    tir_schedule_init(&schedule, arena);
    with->made.count = 0;
    schedule.choices = with;
    cuda_schedule(machine, 1, tir_region_copy(arena, region), &schedule);
    return schedule.text.data ? schedule.text.data : "";
}

static void run(const char *file, const char *text, const char *schedule, const char *plain, const tir_pins *pins) {
    scheduled_report report;
    const bool half = strstr(text, "bf16") || strstr(text, "f16");
    const scheduled_outcome outcome = scheduled_run(text, schedule, half ? 1.0 / 64 : 1e-4, 7, true, &report);
    free(report.kernel);
    tried++;
    changed += strcmp(schedule, plain) != 0;
    refused += outcome == SCHEDULED_REFUSED;
    if (outcome != SCHEDULED_FAILS) return;
    for (uint32_t i = 0; i < pins->count; i++)
        print_message("choose %s.%s %s\n", pins->data[i].stage, pins->data[i].what, pins->data[i].value);
    fprintf(stderr, "%s\n", schedule);
    fail_msg("%s: %s", file, report.message);
}

static void try_choices(lib_arena *arena, const tir_machine *machine, const char *file, const char *text) {
    const tir_region *region = aligned_region_of_text(arena, text);
    tir_choices made = {.arena = arena, .record = true};
    const char *plain = schedule_with(arena, machine, region, &made);
    uint64_t random = 5;
    choices += (int)made.made.count;
    for (uint32_t i = 0; i < made.made.count; i++) {
        const tir_choice *choice = &made.made.data[i];
        for (int n = 0; n < CANDIDATES && n + 1 < choice->count; n++) {
            const int other = choice->count <= CANDIDATES + 1 ? n + (n >= choice->taken)
                                                              : (int)(test_random(&random) % (uint64_t)choice->count);
            tir_choices with = {.arena = arena};
            lib_vec_push(arena, &with.pins, ((tir_pin){choice->stage, choice->what, choice->candidate[other]}));
            run(file, text, schedule_with(arena, machine, region, &with), plain, &with.pins);
        }
    }
    for (int n = 0; n < TOGETHER && made.made.count > 1; n++) {
        tir_choices with = {.arena = arena};
        for (uint32_t i = 0; i < made.made.count; i++) {
            const tir_choice *choice = &made.made.data[i];
            const char *value = choice->candidate[test_random(&random) % (uint64_t)choice->count];
            if (test_random(&random) % 3 == 0)
                lib_vec_push(arena, &with.pins, ((tir_pin){choice->stage, choice->what, value}));
        }
        run(file, text, schedule_with(arena, machine, region, &with), plain, &with.pins);
    }
}

static void test_choices(void **state) {
    (void)state;
    struct dirent **entry;
    tir_machine machine;
    const int count = scandir(FOLDER, &entry, NULL, alphasort);
    const int every = test_every() < 6 ? test_every() : 6; /* fewer have too few choices */
    assert_true(count > 0);
    assert_true(cuda_machine_of_name("sm_90", &machine));
    for (int i = 0; i < count; i++) {
        char path[512];
        snprintf(path, sizeof path, FOLDER "/%s", entry[i]->d_name);
        if (strstr(path, ".txt") && i % every == 0) {
            char *text = region_text(path);
            lib_scope scope;
            lib_arena arena;
            lib_arena_init(&arena, &lib_libc_allocator, &scope);
            if (LIB_ENTER(&scope)) try_choices(&arena, &machine, entry[i]->d_name, text);
            lib_arena_free(&arena);
            if (scope.error.status != DLC_OK) fail_msg("%s: %s", path, scope.error.message);
            free(text);
        }
        free(entry[i]);
    }
    free(entry);
    print_message("%d choices, %d schedules, %d differ from the rules' own, lowering refuses %d\n", choices, tried,
                  changed, refused);
    assert_true(choices * every > 100 && changed > tried / 2 && refused < tried / 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) {
    return 77;
}
#endif
