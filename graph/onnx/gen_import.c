/* The operator reference's text on ONNX: a sentence for each row of the operator table, and tables of the import rows. */
#include "graph/onnx/gen_reference.h"
#include "graph/onnx/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 1024 };

static int compare(const void *a, const void *b) {
    const onnx_row *p = *(const onnx_row *const *)a, *q = *(const onnx_row *const *)b;
    const int names = strcmp(p->name, q->name);
    return names ? names : p->since - q->since;
}

/* The rows of a domain, by name and version; returns their number. */
static int sorted_rows(const onnx_domain *domain, const onnx_row **rows) {
    int count = 0;
    for (int t = 0; domain->tables[t]; t++)
        for (const onnx_row *row = domain->tables[t]; row->name && count < ROWS_MAX; row++) rows[count++] = row;
    qsort(rows, (size_t)count, sizeof *rows, compare);
    return count;
}

/* ---- rows of the operator table ----------------------------------------------------------------------------------------- */

/* The row of the operator table that the import row names, or else the one with its name or alias; NULL: none. */
static const graph_op *counterpart(const onnx_row *row) {
    return row->op ? graph_op_find(row->op) : graph_op_find_alias(row->name);
}

static void print_imports(const graph_op *op) {
    const onnx_row *rows[ROWS_MAX];
    const char *separator = "; imported from ";
    const onnx_domain *domain;
    for (size_t d = 0; (domain = onnx_domain_at(d)) != NULL; d++) {
        const int count = sorted_rows(domain, rows);
        const char *before = NULL;
        for (int i = 0; i < count; i++) {
            if (counterpart(rows[i]) != op || (before && strcmp(before, rows[i]->name) == 0)) continue;
            printf("%s`%s%s%s`", separator, domain->name, *domain->name ? "." : "", rows[i]->name);
            before = rows[i]->name, separator = ", ";
        }
    }
}

void onnx_reference_row(const graph_op *op) {
    printf("\nONNX: ");
    onnx_reference_export(op);
    print_imports(op);
    printf(".\n");
}

/* ---- import rows -------------------------------------------------------------------------------------------------------- */

static void print_domain(const onnx_domain *domain) {
    const onnx_row *rows[ROWS_MAX];
    const int count = sorted_rows(domain, rows);
    printf("\n### %s\n\n| operator | versions | here |\n|---|---|---|\n", *domain->name ? domain->name : "ai.onnx");
    for (int i = 0; i < count;) {
        int next = i;
        printf("| %s | ", rows[i]->name);
        for (; next < count && strcmp(rows[next]->name, rows[i]->name) == 0; next++) {
            const int until = rows[next]->until ? rows[next]->until : domain->last;
            printf("%s%d", next > i ? ", " : "", rows[next]->since);
            if (until != rows[next]->since) printf(" to %d", until);
        }
        const graph_op *op = counterpart(rows[next - 1]);
        if (op)
            printf(" | [%s](#%s) |\n", op->name, op->name);
        else
            printf(" | |\n");
        i = next;
    }
    for (const onnx_refusal *r = domain->refused; r && r->name; r++) printf("| %s | none | %s |\n", r->name, r->reason);
}

void onnx_reference_operators(void) {
    const onnx_domain *domain;
    printf(
        "\n## ONNX\n\nThe operators that models may have (`<dlc/onnx.h>`), with the versions of the operator set that are imported, and the "
        "operator here that corresponds. Nodes of the others become several operators, arithmetic on sizes, or control flow.\n");
    for (size_t d = 0; (domain = onnx_domain_at(d)) != NULL; d++) print_domain(domain);
}
