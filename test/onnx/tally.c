#include "onnx/tally.h"

#include <stdlib.h>
#include <string.h>

enum { OPERATORS = 1024, NAME = 64, COLUMNS = 4 };
static const char several[] = "models of several nodes";

typedef struct row {
    char name[NAME];
    int cases, passed;
    double units;
} row;
static row rows[OPERATORS];
static int row_count;

void tally_add(const char *operator, bool passed, double units) {
    if (!*operator) operator= several;
    int at = 0;
    while (at < row_count && strcmp(rows[at].name, operator) != 0) at++;
    if (at == OPERATORS) return;
    if (at == row_count) snprintf(rows[row_count++].name, NAME, "%s", operator);
    rows[at].cases++;
    rows[at].passed += passed;
    if (passed && units > rows[at].units) rows[at].units = units;
}

/* By name; models of several nodes last. */
static int by_name(const void *a, const void *b) {
    const row *x = a, *y = b;
    const int last = !strcmp(x->name, several) - !strcmp(y->name, several);
    return last ? last : strcmp(x->name, y->name);
}

void tally_write(FILE *to) {
    qsort(rows, (size_t)row_count, sizeof *rows, by_name);
    for (int c = 0; c < COLUMNS; c++) fprintf(to, "| operator | passed | ULP ");
    fprintf(to, "|\n");
    for (int c = 0; c < COLUMNS; c++) fprintf(to, "|---|---|---");
    fprintf(to, "|\n");
    for (int i = 0; i < row_count; i++) {
        const row *r = &rows[i];
        fprintf(to, "| %s | %d/%d | %.*f %s", r->name, r->passed, r->cases, r->units > 0 && r->units < 10, r->units,
                i % COLUMNS == COLUMNS - 1 || i == row_count - 1 ? "|\n" : "");
    }
}
