/* Formulas of trainers: text that builds values by the public builder. */
#ifndef JIT_FORMULA_H
#define JIT_FORMULA_H

#include "lib/lib.h"

#include <dlc/extend.h>

/* A value, or a number, which is folded: 0*x and x*0 are 0, 0 + x is x. */
typedef struct jit_formula_term {
    bool is_number;
    double number;
    /* of a number: none, or the value that was multiplied by 0, whose shape it has */
    dlc_value value;
} jit_formula_term;

typedef struct jit_formula_name {
    const char *name;
    jit_formula_term term;
} jit_formula_name;

/* What names stand for, the last of equal ones; statements add to it. Copies of names are in `arena`. */
typedef struct jit_formula {
    lib_arena *arena;
    dlc_graph *graph;
    /* type of numbers */
    dlc_dtype dtype;
    lib_vec(jit_formula_name) names;
} jit_formula;

void jit_formula_set(jit_formula *formula, const char *name, dlc_value value);
void jit_formula_set_number(jit_formula *formula, const char *name, double number);
/* The value of a name that is set; a number has rank 0, or the shape of the value that was multiplied by 0. */
dlc_value jit_formula_get(const jit_formula *formula, const char *name);
/* `source` names the text in messages. Both raise DLC_PARSE_ERROR with the position; mistakes of operators (one that does not exist, a
 * wrong number of operands) are recorded in the graph. */
dlc_value jit_formula_value(jit_formula *formula, const char *source, const char *text);
/* Statements `name = expression`, separated by semicolons. */
void jit_formula_run(jit_formula *formula, const char *source, const char *text);

#endif
