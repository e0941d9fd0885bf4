/* Formulas: numbers, names, + - * /, comparisons, parentheses, operators of the library by name. See include/dlc/train.h. */
#include "jit/formula.h"

#include <string.h>

enum { OPERANDS = 4, NESTING = 64 };

static void set(jit_formula *formula, const char *name, jit_formula_term term) {
    lib_vec_push(formula->arena, &formula->names, ((jit_formula_name){name, term}));
}

void jit_formula_set(jit_formula *formula, const char *name, dlc_value value) {
    set(formula, name, (jit_formula_term){.value = value});
}

void jit_formula_set_number(jit_formula *formula, const char *name, double number) {
    set(formula, name, (jit_formula_term){.is_number = true, .number = number});
}

static const jit_formula_term *find(const jit_formula *formula, const char *name) {
    for (uint32_t i = formula->names.count; i-- > 0;)
        if (strcmp(formula->names.data[i].name, name) == 0) return &formula->names.data[i].term;
    return NULL;
}

static dlc_value value_of(const jit_formula *formula, jit_formula_term term) {
    return term.is_number ? dlc_scalar(formula->graph, formula->dtype, term.number) : term.value;
}

dlc_value jit_formula_get(const jit_formula *formula, const char *name) {
    const jit_formula_term term = *find(formula, name);
    const dlc_value value = value_of(formula, term);
    if (!term.is_number || !term.value.graph) return value;
    dlc_dim dim[DLC_MAX_RANK];
    const int rank = dlc_value_rank(term.value);
    for (int d = 0; d < rank; d++) dim[d] = dlc_value_dim(term.value, d);
    return dlc_broadcast(value, rank, dim, 0, NULL);
}

typedef struct reader {
    jit_formula *formula;
    lib_lexer lexer;
    int nesting;
} reader;

static jit_formula_term read_comparison(reader *r);

static jit_formula_term apply(const reader *r, const char *name, int count, const jit_formula_term *terms) {
    dlc_value operands[OPERANDS];
    for (int i = 0; i < count; i++) operands[i] = value_of(r->formula, terms[i]);
    return (jit_formula_term){.value = dlc_apply(r->formula->graph, name, count, operands, 0, NULL)};
}

static bool is(jit_formula_term term, double number) {
    return term.is_number && term.number == number;
}

/* x sign y; sign is + - * or /. */
static double calculate(char sign, double x, double y) {
    return sign == '+' ? x + y : sign == '-' ? x - y : sign == '*' ? x * y : x / y;
}

/* a sign b; sign is + - * or /. */
static jit_formula_term combine(const reader *r, char sign, const char *name, jit_formula_term a, jit_formula_term b) {
    if (a.is_number && b.is_number)
        return (jit_formula_term){.is_number = true, .number = calculate(sign, a.number, b.number)};
    if (sign == '*' && (is(a, 0) || is(b, 0)))
        return (jit_formula_term){.is_number = true, .value = a.is_number ? b.value : a.value};
    if ((sign == '+' && is(a, 0)) || (sign == '*' && is(a, 1))) return b;
    if (((sign == '+' || sign == '-') && is(b, 0)) || ((sign == '*' || sign == '/') && is(b, 1))) return a;
    return apply(r, name, 2, (jit_formula_term[]){a, b});
}

static jit_formula_term read_call(reader *r, const char *name) {
    jit_formula_term operands[OPERANDS];
    int count = 0;
    do {
        if (count == OPERANDS) lib_lexer_raise(&r->lexer, "%s has more than %d operands", name, OPERANDS);
        operands[count++] = read_comparison(r);
    } while (lib_lexer_accept(&r->lexer, ","));
    lib_lexer_expect(&r->lexer, ")");
    return apply(r, name, count, operands);
}

static jit_formula_term read_name(reader *r) {
    const char *name = lib_lexer_name(&r->lexer);
    if (lib_lexer_accept(&r->lexer, "(")) return read_call(r, name);
    const jit_formula_term *term = find(r->formula, name);
    if (term) return *term;
    lib_nearest nearest = lib_nearest_to(name);
    for (uint32_t i = 0; i < r->formula->names.count; i++)
        lib_nearest_try(&nearest, r->formula->names.data[i].name, strlen(r->formula->names.data[i].name));
    lib_lexer_raise(&r->lexer, "there is nothing called %s%s", name, lib_nearest_hint(&nearest));
}

static jit_formula_term read_operand(reader *r) {
    jit_formula_term term = {.is_number = true};
    if (++r->nesting > NESTING) lib_lexer_raise(&r->lexer, "the expression is nested deeper than %d", NESTING);
    if (lib_lexer_accept(&r->lexer, "-")) {
        term = read_operand(r);
        if (term.is_number)
            term.number = -term.number;
        else
            term = apply(r, "neg", 1, &term);
    } else if (lib_lexer_accept(&r->lexer, "(")) {
        term = read_comparison(r);
        lib_lexer_expect(&r->lexer, ")");
    } else if (r->lexer.kind == LIB_NAME) {
        term = read_name(r);
    } else {
        term.number = lib_lexer_number(&r->lexer);
    }
    r->nesting--;
    return term;
}

typedef struct infix {
    const char *sign, *name;
} infix;

/* operand { sign operand } by the signs of one row, from the left. */
static jit_formula_term read_row(reader *r, const infix *signs, int count, bool folds,
                                 jit_formula_term (*operand)(reader *r)) {
    jit_formula_term left = operand(r);
    for (int i = 0; i < count; i++) {
        if (!lib_lexer_accept(&r->lexer, signs[i].sign)) continue;
        const jit_formula_term right = operand(r);
        left = folds ? combine(r, signs[i].sign[0], signs[i].name, left, right)
                     : apply(r, signs[i].name, 2, (jit_formula_term[]){left, right});
        i = -1; /* from the first sign again */
    }
    return left;
}

static jit_formula_term read_product(reader *r) {
    static const infix signs[] = {{"*", "mul"}, {"/", "div"}};
    return read_row(r, signs, 2, true, read_operand);
}

static jit_formula_term read_sum(reader *r) {
    static const infix signs[] = {{"+", "add"}, {"-", "sub"}};
    return read_row(r, signs, 2, true, read_product);
}

static jit_formula_term read_comparison(reader *r) {
    static const infix signs[] = {{"<", "lt"}, {"<=", "le"}, {">", "gt"}, {">=", "ge"}, {"==", "eq"}, {"!=", "ne"}};
    return read_row(r, signs, 6, false, read_sum);
}

static reader start(jit_formula *formula, const char *source, const char *text) {
    reader r = {.formula = formula};
    lib_lexer_init(&r.lexer, formula->arena, source, text, strlen(text));
    lib_lexer_next(&r.lexer);
    return r;
}

static void expect_end(const reader *r) {
    if (r->lexer.kind != LIB_END) lib_lexer_raise(&r->lexer, "expected an operator or the end");
}

dlc_value jit_formula_value(jit_formula *formula, const char *source, const char *text) {
    reader r = start(formula, source, text);
    const jit_formula_term term = read_comparison(&r);
    expect_end(&r);
    return value_of(formula, term);
}

void jit_formula_run(jit_formula *formula, const char *source, const char *text) {
    reader r = start(formula, source, text);
    do {
        if (r.lexer.kind == LIB_END) break; /* behind a last semicolon */
        const char *name = lib_lexer_name(&r.lexer);
        lib_lexer_expect(&r.lexer, "=");
        set(formula, name, read_comparison(&r));
    } while (lib_lexer_accept(&r.lexer, ";"));
    expect_end(&r);
}
