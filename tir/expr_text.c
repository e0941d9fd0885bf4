/* Text of expressions. Printing works from a list of pieces still to print, so deep expressions need no deep stack;
 * parsing is precedence climbing with a bound on nesting.
 *
 *   a || b   a && b   a < b   a + b   a * b        binding weaker to stronger; binary operators associate to the left
 *   && and || are of bool; every other operator without a symbol is written as a call: xor(a, b), sqrt(x)
 *   x[i, k]   x[i, k where guard else v]   cast.f32(x)   bitcast.i32(x)   acc(0):f32   true   1.5:f32   nan:f32   7
 *
 * Parsed but never printed: a > b, a >= b, -x.
 *
 * A literal without suffix has the dtype that its context requires: that of the other operand, of the tensor, of the call's
 * result. Without such a requirement it is an index (or f32 if it has a fraction). */
#include "tir/arith.h"
#include "tir/simplify.h"

#include <math.h>

#define UNKNOWN TIR_ANY_DTYPE /* a context that requires no dtype */
#define NESTING 1000

typedef struct infix {
    const char *sign;
    tir_op op;
    /* of binding */
    int level;
    bool of_bool, swapped;
} infix;

static const infix infixes[] = {
    {"||", TIR_OR, 1, true, false},  {"&&", TIR_AND, 2, true, false}, {"==", TIR_EQ, 3, false, false},
    {"!=", TIR_NE, 3, false, false}, {"<=", TIR_LE, 3, false, false}, {"<", TIR_LT, 3, false, false},
    {">=", TIR_LE, 3, false, true},  {">", TIR_LT, 3, false, true}, /* read, never printed */
    {"+", TIR_ADD, 4, false, false}, {"-", TIR_SUB, 4, false, false}, {"*", TIR_MUL, 5, false, false},
    {"/", TIR_DIV, 5, false, false}, {"%", TIR_REM, 5, false, false},
};
#define INFIXES (int)(sizeof infixes / sizeof *infixes)

static bool is_float(tir_dtype dtype) {
    return dtype < DLC_DTYPE_COUNT && lib_dtype_is_float((dlc_dtype)dtype);
}

/* The dtype that operands after the first have: that of the first, except in dot products of small dtypes. */
static tir_dtype later_operand(tir_op op, tir_dtype first) {
    return tir_ops[op].flags & TIR_DOT ? UNKNOWN : first;
}

/* The dtype of the operand before the values: a select's condition, a pick's position. */
static tir_dtype chooser_dtype(tir_op op) {
    return op == TIR_SELECT ? (tir_dtype)DLC_BOOL : TIR_INDEX;
}

/* ---- printing */

typedef struct piece {
    /* or NULL: the expression */
    const char *text;
    tir_expr e;
    /* dtype that the parser will infer */
    tir_dtype want;
    /* weaker operators need parentheses */
    int8_t level;
} piece;

typedef struct printer {
    lib_text *text;
    const tir_pool *pool;
    const char *const *tensors;
    /* last first */
    lib_vec(piece) todo;
} printer;

static void say(printer *p, const char *text) {
    lib_vec_push(p->text->arena, &p->todo, ((piece){.text = text}));
}

static void show(printer *p, tir_expr e, tir_dtype want, int level) {
    lib_vec_push(p->text->arena, &p->todo, ((piece){.e = e, .want = want, .level = (int8_t)level}));
}

static const infix *infix_of(const tir_pool *pool, tir_expr e) {
    tir_op op = tir_op_of(pool, e);
    for (int i = 0; i < INFIXES; i++)
        if (infixes[i].op == op) return !infixes[i].of_bool || tir_dtype_of(pool, e) == DLC_BOOL ? &infixes[i] : NULL;
    return NULL;
}

static void print_const(printer *p, const tir_node *node, tir_dtype want) {
    if (node->dtype == DLC_BOOL) {
        lib_text_add(p->text, node->bits ? "true" : "false");
        return;
    }
    if (is_float(node->dtype))
        lib_text_float(p->text, tir_bits_to_f64(node->dtype, node->bits), (dlc_dtype)node->dtype);
    else
        lib_text_format(p->text, "%lld", (long long)node->bits);
    if (node->dtype != want && !(node->dtype == TIR_INDEX && want == UNKNOWN))
        lib_text_format(p->text, ":%s", tir_dtype_name(node->dtype));
}

/* Is e  index + c*atom  with c < 0? It is written  index - |c|*atom. Without an atom (*atom = 0): index + c. */
static bool is_subtraction(const tir_pool *pool, tir_expr e, tir_expr *atom, int64_t *magnitude) {
    if (tir_op_of(pool, e) != TIR_ADD || tir_dtype_of(pool, e) != TIR_INDEX) return false;
    tir_expr b = tir_operand(pool, e, 1);
    *atom = 0;
    if (tir_op_of(pool, b) == TIR_MUL) *atom = tir_operand(pool, b, 0), b = tir_operand(pool, b, 1);
    int64_t value;
    if (!tir_const_index(pool, b, &value) || value >= 0 || value == INT64_MIN) return false;
    *magnitude = -value;
    return true;
}

static void print_infix(printer *p, const infix *row, piece at) {
    const tir_pool *pool = p->pool;
    tir_expr a = tir_operand(pool, at.e, 0), b = tir_operand(pool, at.e, 1), atom;
    tir_dtype want = (tir_ops[row->op].flags & TIR_COMPARES) ? UNKNOWN : at.want;
    int64_t magnitude;
    const char *sign = row->sign;
    bool parentheses = row->level < at.level;
    if (parentheses) say(p, ")");
    if (is_subtraction(pool, at.e, &atom, &magnitude)) {
        sign = "-";
        if (!atom || magnitude != 1)
            say(p, lib_arena_format(p->text->arena, atom ? "*%lld" : "%lld", (long long)magnitude));
        if (atom) show(p, atom, TIR_INDEX, row->level + 1);
    } else {
        show(p, b, tir_dtype_of(pool, a), row->level + 1);
    }
    say(p, lib_arena_format(p->text->arena, row->level == 5 ? "%s" : " %s ", sign));
    show(p, a, want, row->level);
    if (parentheses) say(p, "(");
}

static void print_load(printer *p, const tir_node *node, tir_expr e) {
    int rank = node->guarded ? node->count - 2 : node->count;
    say(p, "]");
    if (node->guarded) {
        show(p, tir_operand(p->pool, e, rank + 1), node->dtype, 0);
        say(p, " else ");
        show(p, tir_operand(p->pool, e, rank), DLC_BOOL, 0);
        say(p, rank ? " where " : "where ");
    }
    for (int i = rank - 1; i >= 0; i--) {
        show(p, tir_operand(p->pool, e, i), TIR_INDEX, 0);
        if (i) say(p, ", ");
    }
    say(p, "[");
    say(p, p->tensors && p->tensors[node->bits]
               ? p->tensors[node->bits]
               : lib_arena_format(p->text->arena, "t%llu", (unsigned long long)node->bits));
}

static void print_call(printer *p, const tir_node *node, tir_expr e, tir_dtype want) {
    tir_op op = (tir_op)node->op;
    bool converts = op == TIR_CAST || op == TIR_BITCAST;
    const int first = tir_first_value(op);
    tir_dtype later = later_operand(op, tir_dtype_of(p->pool, tir_operand(p->pool, e, first)));
    say(p, ")");
    for (int i = node->count - 1; i >= 0; i--) {
        tir_dtype known = i < first ? chooser_dtype(op) : i > first ? later : converts ? UNKNOWN : want;
        show(p, tir_operand(p->pool, e, i), known, 0);
        if (i) say(p, ", ");
    }
    say(p, "(");
    if (converts) {
        say(p, tir_dtype_name(node->dtype));
        say(p, ".");
    }
    say(p, tir_ops[op].text);
}

static void print_piece(printer *p, piece at) {
    const tir_node *node = tir_get(p->pool, at.e);
    const infix *row;
    switch (node->op) {
    case TIR_CONST: print_const(p, node, at.want); break;
    case TIR_VAR: lib_text_add(p->text, p->pool->variables.data[node->bits].name); break;
    case TIR_ACC:
    case TIR_OTHER:
        lib_text_format(p->text, "%s(%llu):%s", tir_ops[node->op].text, (unsigned long long)node->bits,
                        tir_dtype_name(node->dtype));
        break;
    case TIR_LOAD: print_load(p, node, at.e); break;
    default:
        row = infix_of(p->pool, at.e);
        if (row)
            print_infix(p, row, at);
        else
            print_call(p, node, at.e, at.want);
        break;
    }
}

/* The text of an expression does not share parts: it may be exponentially longer than the expression. */
static void print_up_to(lib_text *text, const tir_pool *pool, tir_expr e, const char *const *tensor_names, size_t end) {
    printer p = {.text = text, .pool = pool, .tensors = tensor_names};
    show(&p, e, UNKNOWN, 0);
    while (p.todo.count) {
        piece at = p.todo.data[--p.todo.count];
        if (text->length > end) {
            lib_text_add(text, "...");
            return;
        }
        if (at.text)
            lib_text_add(text, at.text);
        else
            print_piece(&p, at);
    }
}

void tir_print_expr(lib_text *text, const tir_pool *pool, tir_expr e, const char *const *tensor_names) {
    print_up_to(text, pool, e, tensor_names, SIZE_MAX);
}

void tir_describe_expr(lib_text *text, const tir_pool *pool, tir_expr e) {
    print_up_to(text, pool, e, NULL, text->length + TIR_DESCRIBED);
}

/* ---- parsing */

/* A parsed operand; a literal without a known dtype is `loose`, and made when the other operand's dtype is known. */
typedef struct operand {
    /* 0 if loose */
    tir_expr e;
    bool loose, fraction;
    int64_t integer;
    double number;
} operand;

typedef struct parser {
    tir_pool *pool;
    lib_lexer *lexer;
    const tir_names *names;
    int nesting;
} parser;

static operand parse_level(parser *p, int level, tir_dtype want);

/* Called at each bracket: a level takes up to 3 KiB of the stack. */
static void nest(parser *p) {
    if (++p->nesting > NESTING) lib_lexer_raise(p->lexer, "expression is nested deeper than %d", NESTING);
    lib_stack_require(p->lexer->arena->scope, LIB_STACK_CALL / 2);
}

static tir_expr settle(parser *p, operand x, tir_dtype want) {
    if (!x.loose) return x.e;
    if (want == UNKNOWN) want = x.fraction ? (tir_dtype)DLC_F32 : TIR_INDEX;
    if (is_float(want)) return tir_float(p->pool, want, x.number);
    if (x.fraction) lib_lexer_raise(p->lexer, "a number of dtype %s has no fraction", tir_dtype_name(want));
    return tir_int(p->pool, want, x.integer);
}

static tir_dtype dtype_of(const parser *p, operand x) {
    return x.loose ? UNKNOWN : tir_dtype_of(p->pool, x.e);
}

static tir_expr parse_settled(parser *p, tir_dtype want) {
    nest(p);
    tir_expr e = settle(p, parse_level(p, 1, want), want);
    p->nesting--;
    if (want != UNKNOWN && tir_dtype_of(p->pool, e) != want)
        lib_lexer_raise(p->lexer, "expected an expression of dtype %s, not %s", tir_dtype_name(want),
                        tir_dtype_name(tir_dtype_of(p->pool, e)));
    return e;
}

static tir_dtype parse_dtype(parser *p, const char *name) {
    dlc_dtype dtype;
    tir_dtype more;
    if (p->names->dtype && p->names->dtype(p->names->user, name, &more)) return more;
    if (strcmp(name, "index") == 0) return TIR_INDEX;
    if (!lib_dtype_parse(name, &dtype)) {
        lib_nearest nearest = lib_dtype_nearest(name);
        lib_lexer_raise(p->lexer, "unknown dtype '%s'%s", name, lib_nearest_hint(&nearest));
    }
    return (tir_dtype)dtype;
}

static operand parse_number(parser *p, tir_dtype want) {
    lib_lexer *lexer = p->lexer;
    bool negative = lib_lexer_accept(lexer, "-");
    operand x = {.loose = true, .fraction = lexer->kind != LIB_INTEGER};
    if (lexer->kind == LIB_INTEGER || lexer->kind == LIB_FLOAT)
        x.number = lexer->number;
    else if (lib_lexer_is(lexer, "inf"))
        x.number = INFINITY;
    else if (lib_lexer_is(lexer, "nan"))
        x.number = NAN;
    else
        lib_lexer_raise(lexer, "expected a number after '-'");
    if (!x.fraction) x.integer = negative ? (int64_t)(0 - (uint64_t)lexer->integer) : lexer->integer;
    if (negative) x.number = -x.number;
    lib_lexer_next(lexer);
    if (lib_lexer_accept(lexer, ":")) want = parse_dtype(p, lib_lexer_name(lexer));
    if (want != UNKNOWN) x = (operand){.e = settle(p, x, want)};
    return x;
}

static operand parse_load(parser *p, const char *name) {
    uint32_t id;
    tir_dtype dtype;
    int rank;
    if (!p->names->tensor || !p->names->tensor(p->names->user, name, &id, &dtype, &rank))
        lib_lexer_raise(p->lexer, "unknown tensor '%s'", name);
    tir_expr index[DLC_MAX_RANK * 2], guard = 0, other = 0;
    bool has_leading = p->names->leading && lib_lexer_is(p->lexer, ".");
    int leading = has_leading ? p->names->leading(p->names->user, p->lexer, id, index) : 0;
    for (int i = leading; i < rank; i++) {
        if (i == DLC_MAX_RANK * 2) lib_lexer_raise(p->lexer, "'%s' has too many dimensions", name);
        if (i || has_leading) lib_lexer_expect(p->lexer, ",");
        index[i] = parse_settled(p, TIR_INDEX);
    }
    if (lib_lexer_accept(p->lexer, "where")) {
        guard = parse_settled(p, DLC_BOOL);
        lib_lexer_expect(p->lexer, "else");
        other = parse_settled(p, dtype);
    }
    lib_lexer_expect(p->lexer, "]");
    if (p->names->load) return (operand){.e = p->names->load(p->names->user, id, rank, index, guard, other)};
    return (operand){.e = tir_load(p->pool, id, dtype, rank, index, guard, other)};
}

static operand parse_state(parser *p, tir_op op) {
    int64_t component = lib_lexer_integer(p->lexer);
    lib_lexer_expect(p->lexer, ")");
    lib_lexer_expect(p->lexer, ":");
    tir_dtype dtype = parse_dtype(p, lib_lexer_name(p->lexer));
    if (component < 0 || component > 255) lib_lexer_raise(p->lexer, "no component %lld", (long long)component);
    return (operand){.e = tir_intern(p->pool, op, dtype, (uint64_t)component, false, 0, NULL)};
}

static operand parse_conversion(parser *p, tir_op op, tir_dtype to) {
    lib_lexer_expect(p->lexer, "(");
    tir_expr a = parse_settled(p, UNKNOWN);
    lib_lexer_expect(p->lexer, ")");
    return (operand){.e = op == TIR_CAST ? tir_cast(p->pool, to, a) : tir_bitcast(p->pool, to, a)};
}

/* After "name(". */
static operand parse_call(parser *p, const char *name, tir_dtype want) {
    int found = 0;
    while (found < TIR_OP_COUNT && strcmp(tir_ops[found].text, name) != 0) found++;
    tir_op op = (tir_op)found;
    if (op == TIR_ACC || op == TIR_OTHER) return parse_state(p, op);
    if (op == TIR_OP_COUNT || (tir_ops[op].arity <= 0 && op != TIR_PICK)) {
        lib_nearest nearest = lib_nearest_to(name);
        for (int i = 0; i < TIR_OP_COUNT; i++)
            if (tir_ops[i].arity > 0) lib_nearest_try(&nearest, tir_ops[i].text, strlen(tir_ops[i].text));
        lib_lexer_raise(p->lexer, "unknown function '%s'%s", name, lib_nearest_hint(&nearest));
    }
    tir_expr operands[UINT8_MAX];
    const int first = tir_first_value(op);
    int count = 0;
    tir_dtype expected = (tir_ops[op].flags & TIR_COMPARES) ? UNKNOWN : want;
    for (; op == TIR_PICK ? count < 2 || lib_lexer_is(p->lexer, ",") : count < tir_ops[op].arity; count++) {
        if (count == UINT8_MAX) lib_lexer_raise(p->lexer, "%s of more than %d values", name, UINT8_MAX - 1);
        if (count) lib_lexer_expect(p->lexer, ",");
        operands[count] = parse_settled(p, count < first ? chooser_dtype(op) : expected);
        if (count >= first) expected = later_operand(op, tir_dtype_of(p->pool, operands[first]));
    }
    lib_lexer_expect(p->lexer, ")");
    if (op == TIR_PICK && tir_dtype_of(p->pool, operands[first]) == TIR_INDEX)
        lib_lexer_raise(p->lexer, "%s is of values, not of indices", name);
    if (op == TIR_PICK) return (operand){.e = tir_pick(p->pool, operands[0], count - 1, operands + 1)};
    tir_dtype dtype = (tir_ops[op].flags & TIR_COMPARES) ? (tir_dtype)DLC_BOOL : tir_dtype_of(p->pool, operands[first]);
    return (operand){.e = tir_make(p->pool, op, dtype, count, operands)};
}

static operand parse_named(parser *p, tir_dtype want) {
    lib_lexer *lexer = p->lexer, begin = *lexer;
    const char *name = lib_lexer_name(lexer);
    if (strcmp(name, "true") == 0 || strcmp(name, "false") == 0)
        return (operand){.e = tir_bool(p->pool, name[0] == 't')};
    for (tir_op op = TIR_CAST; op <= TIR_BITCAST;
         op++) { /* "cast.f32" is one name or three tokens, as the lexer is set */
        size_t length = strlen(tir_ops[op].text);
        if (strncmp(name, tir_ops[op].text, length) != 0) continue;
        if (name[length] == '.') return parse_conversion(p, op, parse_dtype(p, name + length + 1));
        if (name[length] == 0 && lib_lexer_accept(lexer, "."))
            return parse_conversion(p, op, parse_dtype(p, lib_lexer_name(lexer)));
    }
    if (lib_lexer_accept(lexer, "[")) return parse_load(p, name);
    if (lib_lexer_accept(lexer, "(")) {
        tir_expr e = p->names->call ? p->names->call(p->names->user, lexer, name, want) : 0;
        return e ? (operand){.e = e} : parse_call(p, name, want);
    }
    operand x = {.loose = true};
    if (p->names->number && p->names->number(p->names->user, name, &x.fraction, &x.integer, &x.number)) return x;
    tir_expr variable = p->names->variable ? p->names->variable(p->names->user, name) : 0;
    if (!variable) lib_lexer_raise(&begin, "unknown name '%s'", name);
    return (operand){.e = variable};
}

/* Whether this is a sign before something other than a number. */
static bool negates(const lib_lexer *lexer) {
    if (!lib_lexer_is(lexer, "-")) return false;
    lib_lexer ahead = *lexer;
    lib_lexer_next(&ahead);
    return ahead.kind != LIB_INTEGER && ahead.kind != LIB_FLOAT && !lib_lexer_is(&ahead, "inf") &&
           !lib_lexer_is(&ahead, "nan") && !lib_lexer_is(&ahead, "-");
}

static operand parse_primary(parser *p, tir_dtype want) {
    lib_lexer *lexer = p->lexer;
    if (negates(lexer)) {
        lib_lexer_next(lexer);
        operand x = parse_primary(p, want);
        if (x.loose)
            return (operand){.loose = true,
                             .fraction = x.fraction,
                             .integer = (int64_t)(0 - (uint64_t)x.integer),
                             .number = -x.number};
        bool index = tir_dtype_of(p->pool, x.e) == TIR_INDEX;
        return (operand){.e = index ? tir_mul(p->pool, x.e, tir_index(p->pool, -1)) : tir_unary(p->pool, TIR_NEG, x.e)};
    }
    if (lib_lexer_accept(lexer, "(")) {
        nest(p);
        operand x = parse_level(p, 1, want);
        p->nesting--;
        lib_lexer_expect(lexer, ")");
        return x;
    }
    bool number = lexer->kind == LIB_INTEGER || lexer->kind == LIB_FLOAT || lib_lexer_is(lexer, "-") ||
                  lib_lexer_is(lexer, "inf") || lib_lexer_is(lexer, "nan");
    if (number) return parse_number(p, want);
    if (lexer->kind != LIB_NAME) lib_lexer_raise(lexer, "expected an expression");
    return parse_named(p, want);
}

static const infix *infix_at(const lib_lexer *lexer, int level) {
    if (lexer->kind != LIB_PUNCTUATION) return NULL;
    for (int i = 0; i < INFIXES; i++)
        if (infixes[i].level >= level && lib_lexer_is(lexer, infixes[i].sign)) return &infixes[i];
    return NULL;
}

static operand parse_level(parser *p, int level, tir_dtype want) {
    /* only && and || are known to have operands of their result's dtype before the operator is seen */
    operand left = parse_primary(p, want == DLC_BOOL ? UNKNOWN : want);
    for (const infix *row; (row = infix_at(p->lexer, level));) {
        lib_lexer_next(p->lexer);
        operand right = parse_level(p, row->level + 1, dtype_of(p, left));
        tir_dtype dtype = left.loose ? dtype_of(p, right) : dtype_of(p, left);
        tir_expr a = settle(p, left, dtype), b = settle(p, right, tir_dtype_of(p->pool, a));
        if (tir_dtype_of(p->pool, a) != tir_dtype_of(p->pool, b))
            lib_lexer_raise(p->lexer, "operands of '%s' are %s and %s", row->sign,
                            tir_dtype_name(tir_dtype_of(p->pool, a)), tir_dtype_name(tir_dtype_of(p->pool, b)));
        left = (operand){.e = row->swapped ? tir_binary(p->pool, row->op, b, a) : tir_binary(p->pool, row->op, a, b)};
    }
    return left;
}

tir_expr tir_parse_expr(tir_pool *pool, lib_lexer *lexer, const tir_names *names, tir_dtype expected) {
    parser p = {.pool = pool, .lexer = lexer, .names = names};
    return parse_settled(&p, expected);
}
