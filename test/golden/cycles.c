/* What the cost model of the cpu target expects of cases of the benchmark on the machines of machines.c, without those of four threads: the sum
 * of cycles over a case's kernels, scheduled and lowered, none compiled; computing constants does not count.
 *
 * cycles.table: the lines of bench/shapes.txt. A prediction that leaves its kept value by more than 3 % fails; with DLC_BLESS=1 these get
 * their values of now.
 * slower.table: blocks (bench/blocks.h) that are expected to take longer as one program than in parts, and how much. One that is not
 * listed, or takes 3 % longer than listed, fails. Those that are no longer slower are told, and DLC_BLESS=1 takes them from the list.
 *
 * cliffs.table: the same for random graphs (bench/random_graphs.h) against their operators as programs of their own.
 *
 * The library runs as ever, on the target of fixed.h. */
#ifdef DLC_TARGET_cpu
#include "bench/cases.h"
#include "bench/random_graphs.h"
#include "golden/fixed.h"

#include <dlc/dlc.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
/* after the above */
#include <cmocka.h>

#define TABLE "test/golden/cycles.table"
#define SHAPES "bench/shapes.txt"
#define SLOWER "test/golden/slower.table"
#define TOLERANCE 0.03
#define AS_FAST 1.02 /* whole over parts: within what the model tells apart */

enum { LINES = 1024 };

/* ---- cases */

/* Bytes of all constants, whose values are nobody's concern: pages of zeros but for the first, so that no two constants are alike. */
static void *some_bytes(size_t size) {
    float *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) fail_msg("no room for %zu bytes of constants", size);
    for (int i = 0; i < 1024; i++) bytes[i] = (float)(i % 61 + 1) / 64;
    return bytes;
}

static double sum_of_cycles(const char *text) {
    static const char word[] = "cycles ";
    double sum = 0;
    while ((text = strstr(text, word)) != NULL) sum += strtod(text += sizeof word - 1, NULL);
    return sum;
}

static uint64_t refused_schedules(dlc_context *context) {
    dlc_statistics statistics = DLC_STATISTICS_INIT;
    dlc_context_statistics(context, &statistics);
    return statistics.interpreted_regions;
}

/* The dump names cycles of kernels alone. */
static double predict_program(dlc_context *context, const char *what, dlc_graph *graph, const int64_t *const *shapes,
                              const int *ranks, int count) {
    dlc_program *program;
    char *text = NULL;
    if (dlc_compile(context, graph, NULL, &program) || dlc_program_dump(program, "llvm", shapes, ranks, count, &text))
        fail_msg("%s: %s", what, dlc_error_message(context));
    const double cycles = sum_of_cycles(text);
    dlc_text_free(context, text);
    dlc_program_destroy(program);
    return cycles;
}

static double floats_of(const bench_operand *o) {
    double floats = 1;
    for (int d = 0; d < o->rank; d++) floats *= (double)o->dims[d];
    return floats;
}

/* Of a map that reads and writes so many floats: what copying results takes that are known before the first run. */
static double predict_copy(dlc_context *context, int64_t floats) {
    dlc_graph *graph;
    assert_int_equal(dlc_graph_create(context, &graph), DLC_OK);
    dlc_value x = dlc_input(graph, "x", DLC_F32, 1, &(dlc_dim){.value = floats});
    dlc_output(graph, "y", dlc_neg(x));
    const double cycles = predict_program(context, "a copy", graph, (const int64_t *[]){&floats}, (int[]){1}, 1);
    dlc_graph_destroy(graph);
    return cycles;
}

/* Of all of a case; of a block: of these steps, unless NULL. Without end, where lowering refuses what the rules write. */
static double predict(dlc_context *context, const bench_shape *shape, const bench_steps *steps, const void *bytes) {
    const bench_case_kind *kind = bench_case_find(shape);
    static bench_builder b;
    dlc_graph *graph;
    const int64_t *shapes[BENCH_MAX_OPERANDS];
    int ranks[BENCH_MAX_OPERANDS], count = 0;
    const uint64_t refused = refused_schedules(context);
    if (!kind) fail_msg("no operator for %s", shape->text);
    assert_int_equal(dlc_graph_create(context, &graph), DLC_OK);
    bench_case_describe(&b, kind->build, shape, graph, steps, bytes);
    for (int i = 0; i < b.problem.operand_count; i++) {
        if (b.problem.operands[i].constant) continue;
        shapes[count] = b.problem.operands[i].dims;
        ranks[count++] = b.problem.operands[i].rank;
    }
    double cycles = predict_program(context, shape->text, graph, shapes, ranks, count);
    for (int r = 0; r < b.problem.result_count && cycles == 0; r++)
        cycles += predict_copy(context, (int64_t)floats_of(&b.problem.results[r]));
    dlc_graph_destroy(graph);
    return refused_schedules(context) == refused ? cycles : INFINITY;
}

/* Of a block's parts, each as one program or as one for each step, what is less. */
static double predict_parts(dlc_context *context, const bench_shape *shape, const void *bytes) {
    double sum = 0;
    for (int p = 0; p < bench_block_parts(shape); p++) {
        const bench_steps steps = bench_block_steps(shape, p);
        double whole = predict(context, shape, &steps, bytes), apart = 0;
        for (int i = 0; i < steps.count && steps.count > 1; i++)
            apart += predict(context, shape, &(bench_steps){1, {steps.values[i]}}, bytes);
        sum += steps.count > 1 && apart < whole ? apart : whole;
    }
    return sum;
}

static dlc_context *open_machine(int m) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    options.target = "null";
    golden_fix_machine(&golden_machines[m]);
    assert_int_equal(dlc_context_create(&options, &context), DLC_OK);
    return context;
}

/* ---- the table: a line for each case, a column for each machine */

static bench_shape cases[LINES];
static double kept[LINES][GOLDEN_MACHINES], now[LINES][GOLDEN_MACHINES];
static int case_count;

/* Cases of the kind, NULL: all, beside those that are there. */
static void read_cases(const char *path, const char *kind) {
    char line[512];
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s cannot be read", path);
    while (fgets(line, sizeof line, file) && case_count < LINES) {
        bench_shape *shape = &cases[case_count];
        case_count += bench_shape_parse(shape, line) && (!kind || strcmp(shape->kind, kind) == 0);
    }
    fclose(file);
}

static bool counts(int machine) {
    return golden_machines[machine].threads == 1;
}

static void read_table(void) {
    char line[1024];
    FILE *file = fopen(TABLE, "r");
    while (file && fgets(line, sizeof line, file)) {
        double columns[GOLDEN_MACHINES] = {0};
        char *at = line;
        for (int m = 0; m < GOLDEN_MACHINES; m++)
            if (counts(m)) columns[m] = strtod(at, &at);
        at += strspn(at, " ");
        at[strcspn(at, "\n")] = 0;
        for (int i = 0; i < case_count && line[0] != ';'; i++)
            if (strcmp(cases[i].text, at) == 0) memcpy(kept[i], columns, sizeof columns);
    }
    if (file) fclose(file);
}

static bool differs(int i, int m) {
    const double off = now[i][m] - kept[i][m];
    return counts(m) && !((off < 0 ? -off : off) <= TOLERANCE * kept[i][m]);
}

static void write_table(void) {
    FILE *file = fopen(TABLE, "w");
    assert_non_null(file);
    fputs(";", file);
    for (int m = 0; m < GOLDEN_MACHINES; m++)
        if (counts(m)) fprintf(file, "%*c", m ? 12 : 10, golden_machines[m].letter);
    fputs("  cycles that the cost model expects; machines: machines.c\n", file);
    for (int i = 0; i < case_count; i++) {
        for (int m = 0; m < GOLDEN_MACHINES; m++)
            if (counts(m)) fprintf(file, m ? " %11.5g" : "%11.5g", differs(i, m) ? now[i][m] : kept[i][m]);
        fprintf(file, "  %s\n", cases[i].text);
    }
    fclose(file);
}

enum { ROOM = 1 << 30 }; /* bytes of the largest constant, at most */

static void predict_all(int m) {
    void *bytes = some_bytes(ROOM);
    dlc_context *context = open_machine(m);
    for (int i = 0; i < case_count; i++) now[i][m] = predict(context, &cases[i], NULL, bytes);
    dlc_context_destroy(context);
    munmap(bytes, ROOM);
}

static void test_cycles(void **state) {
    int off = 0;
    (void)state;
    read_cases(SHAPES, NULL);
    read_table();
    for (int m = 0; m < GOLDEN_MACHINES; m++)
        if (counts(m)) predict_all(m);
    if (getenv("DLC_BLESS")) {
        write_table();
        return;
    }
    for (int i = 0; i < case_count; i++)
        for (int m = 0; m < GOLDEN_MACHINES; m++) {
            if (!differs(i, m)) continue;
            print_message("%c %11.5g, kept %11.5g, %5.2fx  %s\n", golden_machines[m].letter, now[i][m], kept[i][m],
                          now[i][m] / kept[i][m], cases[i].text);
            off++;
        }
    if (off) fail_msg("%d of %d predictions left " TABLE " by more than 3 %%", off, case_count * (GOLDEN_MACHINES - 1));
}

/* ---- blocks and their parts */

/* Machines with large caches. */
static bool counts_for_blocks(int m) {
    return counts(m) && golden_machines[m].facts.l2 > 1 << 20;
}

static void compare_parts(int m) {
    void *bytes = some_bytes(ROOM);
    dlc_context *context = open_machine(m);
    for (int i = 0; i < case_count; i++)
        now[i][m] = predict(context, &cases[i], NULL, bytes) / predict_parts(context, &cases[i], bytes);
    dlc_context_destroy(context);
    munmap(bytes, ROOM);
}

/* Lines `Z 1.53 block ...`. */
static void read_slower(void) {
    char line[1024], letter;
    int at;
    double ratio;
    FILE *file = fopen(SLOWER, "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%c %lf %n", &letter, &ratio, &at) != 2) continue;
        for (int i = 0; i < case_count; i++)
            for (int m = 0; m < GOLDEN_MACHINES; m++)
                if (golden_machines[m].letter == letter && strcmp(cases[i].text, line + at) == 0) kept[i][m] = ratio;
    }
    if (file) fclose(file);
}

static void write_slower(void) {
    FILE *file = fopen(SLOWER, "w");
    assert_non_null(file);
    fputs(
        "; blocks that the cost model expects to take so many times as long as their parts (inf: a schedule is refused): faults of fusion\n",
        file);
    for (int i = 0; i < case_count; i++)
        for (int m = 0; m < GOLDEN_MACHINES; m++)
            if (counts_for_blocks(m) && !(now[i][m] <= AS_FAST))
                fprintf(file, "%c %.2f %s\n", golden_machines[m].letter,
                        kept[i][m] > 0 && !differs(i, m) ? kept[i][m] : now[i][m], cases[i].text);
    fclose(file);
}

static void test_blocks(void **state) {
    int slower = 0, mended = 0;
    (void)state;
    case_count = 0;
    memset(kept, 0, sizeof kept);
    read_cases("bench/default.txt", "block");
    read_cases("bench/variants.txt", "block");
    read_slower();
    for (int m = 0; m < GOLDEN_MACHINES; m++)
        if (counts_for_blocks(m)) compare_parts(m);
    if (getenv("DLC_BLESS")) {
        write_slower();
        return;
    }
    for (int i = 0; i < case_count; i++)
        for (int m = 0; m < GOLDEN_MACHINES; m++) {
            if (!counts_for_blocks(m)) continue;
            mended += kept[i][m] > 0 && now[i][m] <= AS_FAST;
            if (now[i][m] <= AS_FAST || (kept[i][m] > 0 && now[i][m] <= (1 + TOLERANCE) * kept[i][m])) continue;
            print_message("%c %.2f times its parts, listed %.2f  %s\n", golden_machines[m].letter, now[i][m],
                          kept[i][m], cases[i].text);
            slower++;
        }
    if (mended) print_message(SLOWER ": %d are no longer slower than their parts: make bless\n", mended);
    if (slower) fail_msg("%d blocks are expected to be slower than their parts", slower);
}

/* ---- random graphs and their operators */

#define CLIFFS "test/golden/cliffs.table"
#define CLIFF 1.1                 /* whole over parts */
enum { GRAPHS = 120, SEED = 22 }; /* the seed of no run that rules were written by */

/* Without end, where a schedule is refused. */
static double predict_part(dlc_context *context, const bench_random_graph *g, int part) {
    const int64_t *shapes[BENCH_GRAPH_VALUES];
    int ranks[BENCH_GRAPH_VALUES], inputs[BENCH_GRAPH_VALUES], count = bench_graph_inputs(g, part, inputs);
    const uint64_t refused = refused_schedules(context);
    char text[BENCH_GRAPH_TEXT];
    dlc_graph *graph;
    for (int i = 0; i < count; i++) shapes[i] = g->values[inputs[i]].dims, ranks[i] = g->values[inputs[i]].rank;
    bench_graph_text(g, part, false, text);
    if (dlc_graph_parse(context, text, strlen(text), &graph)) fail_msg("%s: %s", text, dlc_error_message(context));
    const double cycles = predict_program(context, text, graph, shapes, ranks, count);
    dlc_graph_destroy(graph);
    return refused_schedules(context) == refused ? cycles : INFINITY;
}

/* Of the whole graph over the sum of its operators; 0: it is one operator. */
static double ratio_of_graph(dlc_context *context, int number) {
    bench_random_graph g;
    double sum = 0;
    int steps = 0;
    bench_random_graph_make(&g, SEED, number);
    for (int v = 0; v < g.count; v++) {
        if (!g.values[v].step[0]) continue;
        sum += predict_part(context, &g, v);
        steps++;
    }
    const double whole = predict_part(context, &g, BENCH_WHOLE);
    return whole == INFINITY ? whole : steps > 1 ? whole / sum : 0;
}

static double listed[GRAPHS][GOLDEN_MACHINES], ratios[GRAPHS][GOLDEN_MACHINES];

/* Lines `Z 1.53 17 n=8 graph ...`, with the graph's number. */
static void read_cliffs(void) {
    char line[BENCH_GRAPH_TEXT], letter;
    double ratio;
    int number;
    FILE *file = fopen(CLIFFS, "r");
    while (file && fgets(line, sizeof line, file))
        for (int m = 0; m < GOLDEN_MACHINES && sscanf(line, "%c %lf %d", &letter, &ratio, &number) == 3; m++)
            if (golden_machines[m].letter == letter && number >= 0 && number < GRAPHS) listed[number][m] = ratio;
    if (file) fclose(file);
}

static void write_cliffs(void) {
    FILE *file = fopen(CLIFFS, "w");
    assert_non_null(file);
    fputs(
        "; random graphs that the cost model expects to take so many times as long as their operators apart: faults of fusion and rules\n",
        file);
    for (int i = 0; i < GRAPHS; i++)
        for (int m = 0; m < GOLDEN_MACHINES; m++) {
            bench_random_graph g;
            char text[BENCH_GRAPH_TEXT];
            if (ratios[i][m] <= CLIFF) continue;
            bench_random_graph_make(&g, SEED, i);
            bench_graph_text(&g, BENCH_WHOLE, false, text);
            fprintf(file, "%c %.2f %d n=%lld %s\n", golden_machines[m].letter, ratios[i][m], i, (long long)g.n, text);
        }
    fclose(file);
}

static void test_cliffs(void **state) {
    int beyond = 0, mended = 0;
    (void)state;
    read_cliffs();
    for (int m = 0; m < GOLDEN_MACHINES; m++) {
        if (!counts_for_blocks(m)) continue;
        dlc_context *context = open_machine(m);
        for (int i = 0; i < GRAPHS; i++) {
            ratios[i][m] = ratio_of_graph(context, i);
            mended += listed[i][m] > 0 && ratios[i][m] <= CLIFF;
            if (ratios[i][m] <= CLIFF || (listed[i][m] > 0 && ratios[i][m] <= (1 + TOLERANCE) * listed[i][m])) continue;
            print_message("%c %.2f times its operators, listed %.2f: graph %d of seed %d (bench/cliffs --list)\n",
                          golden_machines[m].letter, ratios[i][m], listed[i][m], i, SEED);
            beyond++;
        }
        dlc_context_destroy(context);
    }
    if (getenv("DLC_BLESS")) {
        write_cliffs();
        return;
    }
    if (mended) print_message(CLIFFS ": %d are no longer slower than their operators: make bless\n", mended);
    if (beyond) fail_msg("%d random graphs are expected to be slower than their operators", beyond);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cycles), cmocka_unit_test(test_blocks),
                                       cmocka_unit_test(test_cliffs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) {
    return 77;
}
#endif
