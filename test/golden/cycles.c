/* golden/cycles.table: the cycles that the cost model of the cpu target expects of the cases of bench/shapes.txt on the machines of machines.c,
 * without those of four threads. A case is the sum over its kernels, scheduled and lowered, none compiled; computing constants does not
 * count. The test fails where a prediction leaves its kept value by more than 3 %; with DLC_BLESS=1 these get their values of now.
 * The library runs as ever, on the target of fixed.h. */
#ifdef DLC_TARGET_cpu
#include "bench/cases.h"
#include "golden/fixed.h"

#include <dlc/dlc.h>

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
#define TOLERANCE 0.03

enum { LINES = 1024 };

/* ---- cases */

/* Bytes of all constants, whose values are nobody's concern: pages of zeros but for the first, so that they are not all alike. */
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

static double predict(dlc_context *context, const bench_shape *shape, const void *bytes) {
    const bench_case_kind *kind = bench_case_find(shape);
    static bench_builder b;
    dlc_graph *graph;
    dlc_program *program;
    char *text;
    const int64_t *shapes[BENCH_MAX_OPERANDS];
    int ranks[BENCH_MAX_OPERANDS], count = 0;
    if (!kind) fail_msg("no operator for %s", shape->text);
    assert_int_equal(dlc_graph_create(context, &graph), DLC_OK);
    bench_case_describe(&b, kind->build, shape, graph, bytes);
    for (int i = 0; i < b.problem.operand_count; i++) {
        if (b.problem.operands[i].constant) continue;
        shapes[count] = b.problem.operands[i].dims;
        ranks[count++] = b.problem.operands[i].rank;
    }
    if (dlc_compile(context, graph, NULL, &program) || dlc_program_dump(program, "llvm", shapes, ranks, count, &text))
        fail_msg("%s: %s", shape->text, dlc_error_message(context));
    const double cycles = sum_of_cycles(text);
    dlc_text_free(context, text);
    dlc_program_destroy(program);
    dlc_graph_destroy(graph);
    return cycles;
}

/* ---- the table: a line for each case, a column for each machine */

static bench_shape cases[LINES];
static double kept[LINES][GOLDEN_MACHINES], now[LINES][GOLDEN_MACHINES];
static int case_count;

static void read_cases(void) {
    char line[512];
    FILE *file = fopen(SHAPES, "r");
    if (!file) fail_msg(SHAPES " cannot be read");
    while (fgets(line, sizeof line, file) && case_count < LINES)
        case_count += bench_shape_parse(&cases[case_count], line);
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

static void predict_all(int m) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    dlc_statistics statistics = DLC_STATISTICS_INIT;
    const size_t room = (size_t)1 << 31;
    void *bytes = some_bytes(room);
    options.target = "null";
    golden_fix_machine(&golden_machines[m]);
    assert_int_equal(dlc_context_create(&options, &context), DLC_OK);
    for (int i = 0; i < case_count; i++) now[i][m] = predict(context, &cases[i], bytes);
    dlc_context_statistics(context, &statistics);
    assert_int_equal(statistics.interpreted_regions, 0);
    dlc_context_destroy(context);
    munmap(bytes, room);
}

static void test_cycles(void **state) {
    int off = 0;
    (void)state;
    read_cases();
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cycles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) {
    return 77;
}
#endif
