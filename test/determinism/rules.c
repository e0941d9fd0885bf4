/* Two things must not influence a kernel. Names: whatever the axes, stages and inputs of a region are called, the rules of targets write
 * the same schedule, which becomes the same machine code to the byte; shown with the region's names, it says the same. The number of threads: for any, lowering
 * takes the schedule of the cpu target's rules, whose rewrites and order of reductions are the same, so that sums are rounded alike.
 * The regions that are checked: those of the golden tests, and the kernels that fusion makes of three kinds of graphs: samples of all rows of
 * the operator table, graphs of sizes that rules split, and those of test/regress.
 *
 * What names are changed to: others at random; those that rules and rewrites make up themselves; those of the canonical form, in another
 * order; words of the languages; long ones that differ in their last letter. */
#include "determinism/texts.h"
#include "fuzz/case.h"
#include "targets/target.h"
#include "test/region.h"
#include "test/share.h"
#include "tir/choice.h"
#ifdef DLC_TARGET_cuda
#include "targets/cuda/cuda.h"
#endif

#include <dirent.h>

enum { LONG_NAME = 200 };

static const char *only; /* a file with a region: it alone, and what becomes of it */
static int regions, schedules, objects, refused, recorded, families;
static uint64_t seen[4096]; /* hashes of regions so far: many graphs make one */
static int seen_count;

/* ---- renaming */

typedef enum renaming { RANDOM, LOOPS, ROLES, CANONICAL, LEVELS, WORDS, LONGEST, RENAMINGS } renaming;

static const char *const loops[] = {"v_o",  "v_i",    "u_o",   "u_i",   "q_o",   "q_i", "k_o", "k_i", "b_o", "b_i",
                                    "s_o",  "s_i",    "vo",    "vi",    "so",    "si",  "to",  "ti",  "r_o", "r_i",
                                    "t_o",  "t_i",    "w_o",   "w_i",   "v_p",   "v_t", "v_x", "v_y", "f1",  "own1",
                                    "row1", "block0", "rest0", "turn0", "lane0", "run", "turn"};
static const char *const roles[] = {"lane",   "step",      "block", "row",   "place", "chunk",
                                    "within", "group",     "next",  "piece", "in_",   "share",
                                    "lanes",  "key_block", "sums",  "warp",  "pair",  "part_m"};
static const char *const words[] = {"map",   "reduce",   "fold",  "input",  "output", "region", "mask",
                                    "peel",  "balanced", "full",  "reg",    "stack",  "by",     "at",
                                    "order", "rewrite",  "loops", "nt",     "inline", "copy",   "layout",
                                    "split", "exp",      "max",   "shared", "state",  "alike",  "where"};
#define PICK(list, n) ((list)[(n) % (sizeof(list) / sizeof *(list))])

/* Names of inputs and stages follow each other, those of a stage's axes, too; what a list has not is made different by its number. */
static const char *new_name(lib_arena *arena, renaming kind, bool axis, int number, uint64_t *state) {
    const char *letters = axis ? "ikdjb" : "sxst";
    char name[LONG_NAME + 1];
    switch (kind) {
    case RANDOM: return lib_arena_format(arena, "n%llxq%d", (unsigned long long)(test_random(state) >> 40), number);
    case LOOPS:
        return (size_t)number < sizeof loops / sizeof *loops
                   ? loops[number]
                   : lib_arena_format(arena, "%s%d", PICK(loops, number), number);
    case ROLES:
        return (size_t)number < sizeof roles / sizeof *roles
                   ? roles[number]
                   : lib_arena_format(arena, "%s_%d", PICK(roles, number), number);
    case CANONICAL: /* as others of the same region are called then */
        return lib_arena_format(arena, "%c%d", letters[number % 2], axis ? number / 2 : number ^ 1);
    case LEVELS: /* as parts of the stage before are called */
        if (axis) return lib_arena_format(arena, "s0_%d", 1 << number);
        return number == 0 ? "s" : lib_arena_format(arena, number < 16 ? "s_%d" : "s_p%d", number);
    case WORDS:
        return (size_t)number < sizeof words / sizeof *words
                   ? words[number]
                   : lib_arena_format(arena, "%s%d", PICK(words, number), number);
    default:
        memset(name, 'q', LONG_NAME);
        snprintf(name + LONG_NAME - 6, 7, "%06d", number);
        return lib_arena_string(arena, name);
    }
}

static const char *unused_name(tir_region *region, renaming kind, int *number, uint64_t *state) {
    const char *name;
    do {
        name = new_name(region->arena, kind, false, (*number)++, state);
    } while (tir_region_find_tensor(region, name) != UINT32_MAX);
    return name;
}

static void rename_region(tir_region *region, renaming kind, uint64_t seed) {
    uint64_t state = seed;
    int number = 0;
    for (uint32_t t = 0; t < region->tensors.count; t++) region->tensors.data[t].name = "";
    for (uint32_t t = 0; t < region->tensors.count; t++) {
        tir_tensor *tensor = &region->tensors.data[t];
        tensor->name = unused_name(region, kind, &number, &state);
        if (tensor->stage >= 0 && tensor->component == 0) region->stages.data[tensor->stage].name = tensor->name;
    }
    for (uint32_t s = 0; s < region->stages.count; s++) {
        tir_stage *stage = &region->stages.data[s];
        for (int a = 0; a < stage->space + stage->reduce; a++) {
            stage->axis[a].name = new_name(region->arena, kind, true, a, &state);
            region->pool->variables.data[tir_var_id(region->pool, stage->axis[a].var)].name = stage->axis[a].name;
        }
    }
}

/* ---- one region */

/* what a target makes of a region */
typedef struct ruled {
    const char *stages, *schedule, *shown;
    const void *object;
    size_t size;
    /* by lowering: a fault of the rules, which others test */
    bool refused;
} ruled;

typedef struct subject {
    const target *target;
    /* NULL: opens none, and makes no code */
    target_device *device;
    tir_machine machine;
} subject;
static subject subjects[2];
static int subject_count;

static const char *text_of(const tir_schedule *schedule) {
    return schedule->text.data ? schedule->text.data : "";
}

static const void *object_of(lib_arena *arena, const subject *by, const tir_kernel *kernel, size_t *size) {
    target_object object = {0};
    lib_error error = {0};
    *size = 0;
    if (!by->device) return NULL;
    if (by->target->compile(by->device, NULL, 1, &kernel, &object, &error) != DLC_OK)
        lib_raise_error(arena->scope, &error);
    const void *bytes = lib_arena_copy(arena, object.bytes, object.size);
    *size = object.size;
    by->target->release_object(by->device, &object);
    objects++;
    return bytes;
}

/* NULL: it is refused. */
static const tir_kernel *lower(lib_arena *arena, const tir_region *region, const tir_schedule *schedule,
                               const tir_lower_options *options) {
    lib_scope *outer = arena->scope, scope;
    const tir_kernel *volatile kernel = NULL;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) kernel = tir_lower(arena, region, schedule, options);
    arena->scope = outer;
    if (!kernel && scope.error.status != DLC_INVALID_ARGUMENT) lib_raise_error(outer, &scope.error);
    return kernel;
}

/* The order in which the cpu target asks its families of rules means nothing but for wide ones: at most one of the others takes a root. */
static void check_families(lib_arena *arena, const tir_choices *choices) {
    static const char *const wide[] = {"passes", "rows", "mixed", "straight"};
    for (uint32_t i = 0; i < choices->made.count; i++) {
        const tir_choice *made = &choices->made.data[i];
        const char *taker = NULL;
        for (int k = 0; k < made->count && strcmp(made->what, "loops") == 0; k++) {
            bool any = false;
            for (size_t w = 0; w < sizeof wide / sizeof *wide; w++)
                any = any || strcmp(made->candidate[k], wide[w]) == 0;
            if (taker && !any)
                lib_raise(arena->scope, DLC_INTERNAL, "root %s: both %s and %s take it", made->stage, taker,
                          made->candidate[k]);
            taker = any ? taker : made->candidate[k];
            families += k == 0;
        }
    }
}

/* Recording choices changes nothing, nor does pinning each of them to the rules' own answer. */
static void check_choices(lib_arena *arena, const subject *by, const tir_region *canonical,
                          const tir_schedule *expected) {
    tir_choices choices = {.arena = arena, .record = true};
    for (int pinned = 0; pinned < 2; pinned++) {
        tir_schedule schedule;
        tir_schedule_init(&schedule, arena);
        for (uint32_t i = 0; i < choices.made.count; i++) {
            const tir_choice *made = &choices.made.data[i];
            lib_vec_push(arena, &choices.pins, ((tir_pin){made->stage, made->what, made->candidate[made->taken]}));
        }
        choices.made.count = 0;
        schedule.choices = &choices;
        by->target->schedule(&by->machine, 2, tir_region_copy(arena, canonical), &schedule);
        if (strcmp(text_of(&schedule), text_of(expected)) != 0)
            lib_raise(arena->scope, DLC_INTERNAL, "%s choices:\n%s\nwithout:\n%s", pinned ? "pinned" : "recorded",
                      text_of(&schedule), text_of(expected));
        check_families(arena, &choices);
        recorded += (int)choices.made.count;
    }
}

static ruled rule(lib_arena *arena, const subject *by, const tir_region *region, bool code) {
    const tir_lower_options options = {.machine = &by->machine};
    ruled out = {0};
    lib_text stages;
    tir_schedule schedule, shown;
    tir_region *canonical = tir_region_canonical(arena, region);
    lib_text_init(&stages, arena);
    tir_region_print(&stages, canonical);
    tir_schedule_init(&schedule, arena);
    tir_schedule_init(&shown, arena);
    by->target->schedule(&by->machine, 2, tir_region_copy(arena, canonical), &schedule);
    if (only) fprintf(stderr, "%s, canonical:\n%s", by->target->name, text_of(&schedule));
    check_choices(arena, by, canonical, &schedule);
    const tir_kernel *kernel = lower(arena, canonical, &schedule, &options);
    if (kernel && code) out.object = object_of(arena, by, kernel, &out.size);
    tir_schedule_show(&shown, &schedule, region);
    if (only) fprintf(stderr, "%s, shown:\n%s", by->target->name, text_of(&shown));
    if (kernel) /* what is shown is understood */
        tir_lower(arena, region, &shown, &options);
    out.refused = !kernel;
    refused += !kernel;
    if (!kernel && by->device) lib_raise(arena->scope, DLC_INTERNAL, "lowering refuses the schedule");
    out.stages = stages.data, out.schedule = text_of(&schedule), out.shown = text_of(&shown);
    schedules++;
    return out;
}

/* Rules that see the names themselves, of which none is like their own, write what is shown of the canonical ones. */
static void check_rules_see_no_names(lib_arena *arena, const subject *by, const tir_region *region,
                                     const ruled *expected) {
    tir_schedule schedule;
    tir_schedule_init(&schedule, arena);
    by->target->schedule(&by->machine, 2, tir_region_copy(arena, region), &schedule);
    if (only) fprintf(stderr, "%s, not canonical:\n%s", by->target->name, text_of(&schedule));
    if (strcmp(text_of(&schedule), expected->shown) != 0)
        lib_raise(arena->scope, DLC_INTERNAL, "with names that rules see:\n%s\nwith canonical ones:\n%s",
                  text_of(&schedule), expected->shown);
}

static void check_renamings(lib_arena *arena, const subject *by, const char *text) {
    const bool code = regions % 4 == 0;
    const ruled plain = rule(arena, by, aligned_region_of_text(arena, text), code);
    for (int kind = 0; kind < RENAMINGS; kind++) {
        tir_region *region = aligned_region_of_text(arena, text);
        rename_region(region, (renaming)kind, (uint64_t)regions * RENAMINGS + (uint64_t)kind);
        const bool coded = code && kind == regions / 4 % RENAMINGS;
        const ruled renamed = rule(arena, by, region, coded);
        if (strcmp(renamed.stages, plain.stages) != 0)
            lib_raise(arena->scope, DLC_INTERNAL, "renaming %d: canonical regions differ:\n%s\n%s", kind, plain.stages,
                      renamed.stages);
        if (strcmp(renamed.schedule, plain.schedule) != 0)
            lib_raise(arena->scope, DLC_INTERNAL, "renaming %d: schedules differ:\n%s\n%s", kind, plain.schedule,
                      renamed.schedule);
        if (coded && by->device &&
            (renamed.size != plain.size || memcmp(renamed.object, plain.object, plain.size) != 0))
            lib_raise(arena->scope, DLC_INTERNAL, "renaming %d: objects differ", kind);
        if (kind == RANDOM) check_rules_see_no_names(arena, by, region, &renamed);
    }
}

/* ---- threads */

/* Is "S.a" in the list, a line for each loop? */
static bool lists_loop(const lib_text *along, const char *loop) {
    const size_t length = strlen(loop);
    const char *at = along->data;
    for (; at && *at; at += strcspn(at, "\n") + 1)
        if (strncmp(at, loop, length) == 0 && at[length] == '\n') return true;
    return false;
}

/* Appends what a line of a schedule says about reductions: loops that split one, their order in its stage, instructions for several steps. */
static void add_reductions(lib_arena *arena, lib_text *out, lib_text *along, const char *line) {
    char stage[2 * LONG_NAME], axis[2 * LONG_NAME], outer[2 * LONG_NAME], inner[2 * LONG_NAME];
    const char *whole = lib_arena_format(arena, "%.*s", (int)strcspn(line, "\n"), line);
    long long size;
    int at = 0;
    if (sscanf(whole, "split %399[^.].%399s %lld -> %399s %399s", stage, axis, &size, outer, inner) == 5) {
        const char *loop = lib_arena_format(arena, "%s.%s", stage, axis);
        if (!lists_loop(along, loop)) return;
        lib_text_format(along, "%s.%s\n%s.%s\n", stage, outer, stage, inner);
        lib_text_format(out, "%s\n", whole);
    } else if (sscanf(whole, "order %399[^:]:%n", stage, &at) == 1 && at > 0) {
        lib_text_format(out, "%s:", stage);
        for (const char *word = whole + at; sscanf(word, "%399s%n", axis, &at) == 1; word += at) {
            const char *loop = lib_arena_format(arena, "%s.%s", stage, axis);
            if (lists_loop(along, loop)) lib_text_format(out, " %s", axis);
        }
        lib_text_add(out, "\n");
    } else if (strncmp(whole, "unit ", 5) == 0) {
        lib_text_format(out, "%s\n", whole);
    }
}

/* The rewritten region, and what the schedule says about its reductions. */
static const char *sums_of(lib_arena *arena, tir_region *region, const tir_schedule *schedule) {
    lib_text out, along;
    lib_text_init(&out, arena);
    lib_text_init(&along, arena);
    tir_schedule_rewrite(region, schedule, NULL);
    tir_region_print(&out, region);
    for (uint32_t s = 0; s < region->stages.count; s++) {
        const tir_stage *stage = &region->stages.data[s];
        for (int a = stage->space; !stage->removed && a < stage->space + stage->reduce; a++)
            lib_text_format(&along, "%s.%s\n", stage->name, stage->axis[a].name);
    }
    for (const char *at = text_of(schedule); *at; at += strcspn(at, "\n"), at += *at == '\n')
        add_reductions(arena, &out, &along, at);
    return out.data;
}

/* As for a program on so many threads: what needs more registers than there are is scheduled again for half of them. */
static const char *sums_on(lib_arena *arena, const subject *by, const tir_region *region, int threads) {
    enum { LEAST_REGISTERS = 4 };
    tir_machine machine = by->machine;
    tir_schedule schedule;
    bool overfull = true;
    const tir_lower_options options = {.machine = &by->machine, .verify = true, .overfull = &overfull};
    for (; overfull && machine.vector_registers >= LEAST_REGISTERS; machine.vector_registers /= 2) {
        overfull = false;
        tir_schedule_init(&schedule, arena);
        by->target->schedule(&machine, threads, tir_region_copy(arena, region), &schedule);
        if (only) fprintf(stderr, "%s, %d threads:\n%s", by->target->name, threads, text_of(&schedule));
        schedules++;
        if (lower(arena, region, &schedule, &options)) return sums_of(arena, tir_region_copy(arena, region), &schedule);
    }
    lib_raise(arena->scope, DLC_INTERNAL, "lowering refuses the schedule for %d threads:\n%s", threads,
              text_of(&schedule));
}

static void check_threads(lib_arena *arena, const subject *by, const char *text) {
    static const int counts[] = {2, 3, 8, 64};
    const tir_region *region = tir_region_canonical(arena, aligned_region_of_text(arena, text));
    const char *alone = sums_on(arena, by, region, 1);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const char *several = sums_on(arena, by, region, counts[i]);
        if (strcmp(several, alone) != 0)
            lib_raise(arena->scope, DLC_INTERNAL, "reductions differ on %d threads:\n%s\non one:\n%s", counts[i],
                      several, alone);
    }
}

static void check_region_by(lib_arena *arena, const subject *by, const char *text) {
    check_renamings(arena, by, text);
    if (by->device) check_threads(arena, by, text);
}

static void check_by(const subject *by, const char *text) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) check_region_by(&arena, by, text);
    lib_arena_free(&arena);
    if (scope.error.status != DLC_OK) fail_msg("%s: %s\n%s", by->target->name, scope.error.message, text);
}

static void check_region(const char *text) {
    for (int i = 0; i < subject_count; i++) check_by(&subjects[i], text);
    regions++;
}

/* ---- regions of golden tests */

static bool ends_in(const char *name, const char *end) {
    return strlen(name) > strlen(end) && strcmp(name + strlen(name) - strlen(end), end) == 0;
}

static void check_folder(const char *folder) {
    struct dirent **entry;
    const int count = scandir(folder, &entry, NULL, alphasort);
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        if (ends_in(path, ".txt") && test_takes(i, 3)) {
            char *text = read_text(path), *at = text, *end = strstr(text, "\n==== ");
            if (end) end[1] = 0;
            while (*at == ';') at += strcspn(at, "\n") + 1;
            if (strncmp(at, "region", 6) == 0) check_region(at);
            free(text);
        }
        free(entry[i]);
    }
    free(entry);
}

static void test_golden_regions(void **state) {
    (void)state;
    check_folder("test/golden");
    check_folder("test/golden/cuda");
    check_folder("test/golden/cpu");
}

/* ---- what fusion makes of graphs */

static dlc_context *context;

static void check_graph(const char *text, const case_setting *setting) {
    case_shapes shapes;
    lib_error error;
    dlc_graph *g = NULL;
    dlc_program *program = NULL;
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    const int64_t *dims[CASE_TENSORS];
    int ranks[CASE_TENSORS];
    char *stages = NULL;
    options.no_excess_precision = setting->strict;
    if (!case_shapes_of(text, setting, 0, &shapes, &error)) fail_msg("%s: %s", text, error.message);
    for (int i = 0; i < shapes.inputs; i++) dims[i] = shapes.input[i].dim, ranks[i] = shapes.input[i].rank;
    setenv("DLC_LAYOUT", setting->layout ? "all" : "", 1);
    if (dlc_graph_parse(context, text, strlen(text), &g) != DLC_OK ||
        dlc_compile(context, g, &options, &program) != DLC_OK ||
        dlc_program_dump(program, "stages", dims, ranks, shapes.inputs, &stages) != DLC_OK)
        fail_msg("%s\n%s", dlc_error_message(context), text);
    for (char *at = stages; (at = strstr(at, "region ")) != NULL;) {
        char *end = strstr(at, "\n\n"), *next = end ? end + 2 : at + strlen(at);
        if (end) end[1] = 0;
        const uint64_t hash = lib_hash64(at, strlen(at), 0);
        bool known = false;
        for (int i = 0; i < seen_count; i++) known = known || seen[i] == hash;
        if (!known) check_region(at);
        if (!known && seen_count < (int)(sizeof seen / sizeof *seen)) seen[seen_count++] = hash;
        at = next;
    }
    dlc_text_free(context, stages);
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
}

static void check_sample(void *user, char *text, const sample *s) {
    (void)user, (void)s;
    check_graph(text, &(case_setting){.seed = 1, .runs = 1});
    free(text);
}

static void test_samples(void **state) {
    (void)state;
    for_samples(check_sample, NULL);
}

static void test_large(void **state) {
    (void)state;
    for_large_samples(check_sample, NULL);
}

static void test_regress(void **state) {
    struct dirent **entry;
    (void)state;
    const int count = scandir("test/regress", &entry, NULL, alphasort), every = test_share();
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        char path[512];
        snprintf(path, sizeof path, "test/regress/%s", entry[i]->d_name);
        if (ends_in(path, ".txt") && i % every == 0) {
            char *text = read_text(path);
            const case_setting setting = case_read_setting(text);
            check_graph(text, &setting);
            free(text);
        }
        free(entry[i]);
    }
    free(entry);
}

/* ---- all */

static int open_all(void **state) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    lib_error error;
    (void)state;
    if (dlc_context_create(&options, &context) != DLC_OK) return -1;
#ifdef DLC_TARGET_cpu
    subject *cpu = &subjects[subject_count++];
    const target_options to = {.allocator = &lib_libc_allocator};
    cpu->target = &target_cpu;
    if (target_cpu.open(&to, &cpu->device, &cpu->machine, &error) != DLC_OK) return -1;
#endif
#ifdef DLC_TARGET_cuda
    subject *cuda = &subjects[subject_count++];
    cuda->target = &target_cuda;
    if (!cuda_machine_of_name("sm_90", &cuda->machine)) return -1;
#endif
    (void)error;
    return 0;
}

static int close_all(void **state) {
    (void)state;
    print_message("%d regions, %d schedules, %d of them refused, %d objects of code; %d choices, %d of a family\n",
                  regions, schedules, refused, objects, recorded, families);
    for (int i = 0; i < subject_count; i++)
        if (subjects[i].device) subjects[i].target->close(subjects[i].device);
    dlc_context_destroy(context);
    return 0;
}

static void test_file(void **state) {
    (void)state;
    char *text = read_text(only);
    check_region(text);
    free(text);
}

/* Runs from the root of the repository. rules [FILE] */
int main(int argc, char **argv) {
    const struct CMUnitTest file[] = {cmocka_unit_test(test_file)};
    if (argc > 1) {
        only = argv[1];
        return cmocka_run_group_tests_name("determinism/rules", file, open_all, close_all);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_regions),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_regress),
    };
    return cmocka_run_group_tests_name("determinism/rules", tests, open_all, close_all);
}
