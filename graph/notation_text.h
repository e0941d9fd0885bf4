/* The parsed texts of a notation. Expressions stay text, which notation.c interprets for given operands. Internal to notation.c and
 * notation_text.c. */
#ifndef GRAPH_NOTATION_TEXT_H
#define GRAPH_NOTATION_TEXT_H

#include "graph/notation.h"

/* a dimension of a shape rule */
typedef struct notation_dim {
    const char *text;
    bool is_name;
} notation_dim;

/* T[..., n, k] */
typedef struct notation_tensor {
    const char *dtype;
    bool leading;
    /* number of dimensions after `...` */
    int rank;
    notation_dim dim[DLC_MAX_RANK];
} notation_tensor;

/* x[..., i, k]: found before x's shape is known */
typedef struct notation_access {
    const char *tensor;
    bool leading;
    /* number of indices after `...` */
    int count;
    /* the index, if it is a plain name; else NULL */
    const char *index[DLC_MAX_RANK];
} notation_access;

/* out[..., i, j] = ... */
typedef struct notation_statement {
    const char *name;
    bool leading;
    int axes;
    const char *axis[DLC_MAX_RANK];
    /* text after `=` */
    const char *text;
    size_t length;
    /* start and number of the line on which `text` begins, for messages */
    const char *line_start;
    int line;
    lib_vec(notation_access) accesses;
} notation_statement;

struct graph_notation {
    bool has_shape;
    int operands, results;
    notation_tensor operand[DLC_MAX_RANK], result[DLC_MAX_RANK];
    int statements;
    notation_statement *statement;
};

/* Both raise DLC_PARSE_ERROR with line and column. Dimensions may use sizes of earlier operands and the op's attributes. */
void graph_notation_read_shape(lib_arena *arena, graph_notation *notation, const graph_op *op, const char *text);
void graph_notation_read_expression(lib_arena *arena, graph_notation *notation, const char *text);
bool graph_notation_accept_leading(lib_lexer *lexer); /* `...` */

#endif
